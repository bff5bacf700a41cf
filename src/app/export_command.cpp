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
      {.name = "format",
       .value = "safetensors|onnx|pt2",
       .help = "safetensors: the weights. onnx: the network for inference. pt2: model.file with these weights",
       .default_value = "safetensors"},
      {.name = "output",
       .value = "file",
       .help = "the file to write; one that millrace wrote is replaced",
       .default_value = "model.FORMAT in RUN_DIR, or CHECKPOINT with another ending"},
  };
  return table;
}

ExportFormat format_from(const std::string& name) {
  if (name == "safetensors") return ExportFormat::safetensors;
  if (name == "onnx") return ExportFormat::onnx;
  if (name == "pt2") return ExportFormat::pt2;
  fail(Exit::config, "command line: --format: '{}' is not a format that millrace writes. use safetensors, onnx or pt2",
       name);
}

std::string default_output(const CheckpointChoice& choice, const std::string& format) {
  if (choice.which == "newest" || choice.which == "best") return choice.run_dir + "/model." + format;
  return choice.which.substr(0, choice.which.rfind('.')) + "." + format;
}

}  // namespace

std::string export_help() {
  return "usage: millrace export RUN_DIR|CHECKPOINT [options]\n\n" + flags_help(export_flags()) +
         "\nWrites the model of a checkpoint for other programs. The averages are written if the run kept some "
         "(optim.ema).\n\n"
         "safetensors: the weights with PyTorch's names and order of axes: those of torchvision (resnet), timm (vit,\n"
         "convnext), Hugging Face transformers (gpt2, llama) and Pytorch-UNet (unet), and of the exported network "
         "(pt2).\n"
         "In Python: net.load_state_dict(safetensors.torch.load_file('model.safetensors'), strict=True). The file also "
         "holds\n"
         "the configuration, the normalisation and the classes, so that eval, predict, generate and model.weights take "
         "it in\n"
         "place of a checkpoint.\n\n"
         "onnx: the network for inference, with the normalisation of the data as its first layers. onnxruntime and "
         "others run it.\n"
         "Its input are values as the files store them, channels first, or tokens (int64). The number of samples is "
         "free.\n\n"
         "pt2: for model.name = pt2, a copy of model.file with the trained weights, for torch.export.load().\n";
}

Exit export_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, export_flags(), true);
  const CheckpointChoice choice =
      take_checkpoint(parsed, "nothing to export. give the folder of a run or a checkpoint");
  reject_positional(parsed);
  const std::string name = parsed.get("format", "safetensors");
  const ExportFormat format = format_from(name);
  const std::string output = parsed.get("output", default_output(choice, name));
  return export_model(world, resolve_config({config_of_checkpoint(world, choice)}, parsed.keys), choice, format,
                      output);
}

}  // namespace millrace::app
