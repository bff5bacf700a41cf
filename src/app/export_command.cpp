#include "app/commands.hpp"
#include "millrace/base/error.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/flag_values.hpp"
#include "millrace/config/options.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& export_flags() {
  static const std::vector<Flag> table = {
      {.name = "checkpoint",
       .value = "newest|best|file",
       .help = "which checkpoint of the run, best by checkpoint.best, or the path of any checkpoint",
       .default_value = "newest"},
      {.name = "format", .value = "safetensors", .help = "format of the file", .default_value = "safetensors"},
      {.name = "output",
       .value = "file",
       .help = "the file to write; one that millrace wrote is replaced",
       .default_value = "model.safetensors in RUN_DIR, or CHECKPOINT with another ending"},
  };
  return table;
}

std::string default_output(const CheckpointChoice& choice) {
  if (choice.which == "newest" || choice.which == "best") return choice.run_dir + "/model.safetensors";
  return choice.which.substr(0, choice.which.rfind('.')) + ".safetensors";
}

}  // namespace

std::string export_help() {
  return "usage: millrace export RUN_DIR|CHECKPOINT [options]\n\n" + flags_help(export_flags()) +
         "\nWrites the weights of a checkpoint for other programs, with PyTorch's names and order of axes: those of\n"
         "torchvision (resnet), timm (vit, convnext), Hugging Face transformers (gpt2, llama) and Pytorch-UNet (unet), "
         "and\n"
         "of the exported network (pt2). In Python:\n\n"
         "  net.load_state_dict(safetensors.torch.load_file('model.safetensors'), strict=True)\n\n"
         "The averages are written if the run kept some (optim.ema). The file also holds the configuration, the\n"
         "normalisation and the classes, so that eval, predict, generate and model.weights take it in place of a "
         "checkpoint.\n";
}

Exit export_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, export_flags(), true);
  const CheckpointChoice choice =
      take_checkpoint(parsed, "nothing to export. give the folder of a run or a checkpoint");
  reject_positional(parsed);
  if (const std::string format = parsed.get("format", "safetensors"); format != "safetensors")
    fail(Exit::config, "command line: --format: '{}' is not a format that millrace writes. use safetensors", format);
  const std::string output = parsed.get("output", default_output(choice));
  return export_weights(world, resolve_config({config_of_checkpoint(world, choice)}, parsed.keys), choice, output);
}

}  // namespace millrace::app
