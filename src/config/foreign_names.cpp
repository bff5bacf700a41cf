// Names that users of PyTorch, Lightning, Keras and Hugging Face know, and the key that means the same here.
#include "config/foreign_names.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

#include "millrace/config/keys.hpp"
#include "millrace/config/options.hpp"

namespace millrace {
namespace {

struct ForeignName {
  const char* name;  // in small letters, without '_' and '-'
  const char* key;
};

constexpr ForeignName foreign_training[] = {
    {"batchsize", "train.global_batch"},
    {"batch", "train.global_batch"},
    {"bs", "train.global_batch"},
    {"globalbatchsize", "train.global_batch"},
    {"trainbatchsize", "train.global_batch"},
    {"perdevicetrainbatchsize", "train.micro_batch"},
    {"microbatchsize", "train.micro_batch"},
    {"minibatch", "train.micro_batch"},
    {"minibatchsize", "train.micro_batch"},
    {"gradientaccumulationsteps", "train.micro_batch"},
    {"accumulategradbatches", "train.micro_batch"},
    {"accumulationsteps", "train.micro_batch"},
    {"epoch", "train.epochs"},
    {"numepochs", "train.epochs"},
    {"nepochs", "train.epochs"},
    {"maxepochs", "train.epochs"},
    {"numtrainepochs", "train.epochs"},
    {"maxsteps", "train.steps"},
    {"numsteps", "train.steps"},
    {"totalsteps", "train.steps"},
    {"iterations", "train.steps"},
    {"maxiter", "train.steps"},
    {"earlystopping", "train.patience"},
    {"earlystoppingpatience", "train.patience"},
    {"evalsteps", "train.evaluate_every"},
    {"evalevery", "train.evaluate_every"},
    {"evalinterval", "train.evaluate_every"},
    {"valcheckinterval", "train.evaluate_every"},
    {"gradientcheckpointing", "train.recompute"},
    {"activationcheckpointing", "train.recompute"},
};

constexpr ForeignName foreign_optimizers[] = {
    {"learningrate", "optim.lr"},
    {"baselr", "optim.lr"},
    {"initlr", "optim.lr"},
    {"maxlr", "optim.lr"},
    {"etamin", "optim.min_lr"},
    {"minlearningrate", "optim.min_lr"},
    {"optimizer", "optim.name"},
    {"optim", "optim.name"},
    {"opt", "optim.name"},
    {"scheduler", "optim.schedule"},
    {"lrscheduler", "optim.schedule"},
    {"lrschedule", "optim.schedule"},
    {"warmupsteps", "optim.warmup"},
    {"warmupepochs", "optim.warmup"},
    {"warmupratio", "optim.warmup"},
    {"wd", "optim.weight_decay"},
    {"l2", "optim.weight_decay"},
    {"betas", "optim.beta1"},
    {"adambeta1", "optim.beta1"},
    {"adambeta2", "optim.beta2"},
    {"eps", "optim.epsilon"},
    {"adamepsilon", "optim.epsilon"},
    {"clipgrad", "optim.clip"},
    {"clipgradnorm", "optim.clip"},
    {"gradclip", "optim.clip"},
    {"clipnorm", "optim.clip"},
    {"maxgradnorm", "optim.clip"},
    {"gradientclipval", "optim.clip"},
    {"emadecay", "optim.ema"},
    {"zerostage", "optim.zero"},
    {"fsdp", "optim.zero"},
};

constexpr ForeignName foreign_data[] = {
    {"numworkers", "data.workers"},
    {"nworkers", "data.workers"},
    {"dataloadernumworkers", "data.workers"},
    {"prefetchfactor", "data.prefetch"},
    {"dataset", "data.train"},
    {"data", "data.train"},
    {"datadir", "data.train"},
    {"datapath", "data.train"},
    {"traindata", "data.train"},
    {"trainfile", "data.train"},
    {"traindataset", "data.train"},
    {"val", "data.valid"},
    {"validation", "data.valid"},
    {"valdata", "data.valid"},
    {"validdata", "data.valid"},
    {"validationdata", "data.valid"},
    {"evaldataset", "data.valid"},
    {"test", "data.valid"},
    {"testdata", "data.valid"},
    {"validationsplit", "data.split"},
    {"validsplit", "data.split"},
    {"valsplit", "data.split"},
    {"valsize", "data.split"},
    {"testsize", "data.split"},
    {"traintestsplit", "data.split"},
    {"stratify", "data.split_by"},
    {"stratified", "data.split_by"},
    {"groups", "data.group"},
    {"kfold", "data.fold"},
    {"folds", "data.fold"},
    {"nsplits", "data.fold"},
    {"features", "data.x"},
    {"labels", "data.y"},
    {"target", "data.y"},
    {"targets", "data.y"},
    {"augmentation", "data.augment"},
    {"transforms", "data.augment"},
    {"normalization", "data.normalize"},
    {"scaletargets", "data.normalize_targets"},
    {"normalizelabels", "data.normalize_targets"},
    {"randomcrop", "data.crop_pad"},
    {"horizontalflip", "data.flip"},
    {"hflip", "data.flip"},
};

constexpr ForeignName foreign_networks[] = {
    {"model", "model.name"},
    {"arch", "model.name"},
    {"architecture", "model.name"},
    {"network", "model.name"},
    {"net", "model.name"},
    {"backbone", "model.name"},
    {"numlayers", "model.blocks"},
    {"nlayers", "model.blocks"},
    {"nlayer", "model.blocks"},
    {"hiddensize", "model.hidden"},
    {"hiddensizes", "model.hidden"},
    {"hiddendim", "model.hidden"},
    {"hiddenlayers", "model.hidden"},
    {"hiddenlayersizes", "model.hidden"},
    {"hiddenunits", "model.hidden"},
    {"units", "model.hidden"},
    {"numheads", "model.heads"},
    {"nheads", "model.heads"},
    {"nhead", "model.heads"},
    {"dmodel", "model.width"},
    {"embeddim", "model.width"},
    {"nembd", "model.width"},
    {"filters", "model.width"},
    {"dimfeedforward", "model.feed_forward"},
    {"mlpdim", "model.feed_forward"},
    {"dropoutrate", "model.dropout"},
    {"droprate", "model.dropout"},
    {"act", "model.activation"},
    {"activationfunction", "model.activation"},
    {"criterion", "model.loss"},
    {"lossfn", "model.loss"},
    {"lossfunction", "model.loss"},
    {"classweight", "model.class_weights"},
    {"posweight", "model.class_weights"},
    {"patchsize", "model.patch"},
    {"syncbn", "model.sync_batch_norm"},
    {"syncbatchnorm", "model.sync_batch_norm"},
};

constexpr ForeignName foreign_runs[] = {
    {"amp", "run.precision"},
    {"mixedprecision", "run.precision"},
    {"fp16", "run.precision"},
    {"bf16", "run.precision"},
    {"dtype", "run.precision"},
    {"gpus", "run.device"},
    {"gpu", "run.device"},
    {"cuda", "run.device"},
    {"usecuda", "run.device"},
    {"accelerator", "run.device"},
    {"randomseed", "run.seed"},
    {"manualseed", "run.seed"},
    {"randomstate", "run.seed"},
    {"outputdir", "run.dir"},
    {"outdir", "run.dir"},
    {"output", "run.dir"},
    {"savedir", "run.dir"},
    {"logdir", "run.dir"},
    {"rundir", "run.dir"},
    {"defaultrootdir", "run.dir"},
    {"resumefromcheckpoint", "run.resume"},
    {"ckptpath", "run.resume"},
    {"numthreads", "run.threads"},
    {"nthreads", "run.threads"},
    {"timelimit", "run.walltime"},
    {"maxtime", "run.walltime"},
    {"saveevery", "checkpoint.every"},
    {"savesteps", "checkpoint.every"},
    {"savefreq", "checkpoint.every"},
    {"saveinterval", "checkpoint.every"},
    {"checkpointinterval", "checkpoint.every"},
    {"savetotallimit", "checkpoint.keep"},
    {"savetopk", "checkpoint.keep"},
    {"monitor", "checkpoint.best"},
    {"metricforbestmodel", "checkpoint.best"},
    {"loginterval", "log.every"},
    {"loggingsteps", "log.every"},
    {"logeverynsteps", "log.every"},
    {"bucketcapmb", "comm.bucket_size"},
};

// Names that are accepted in place of the key, with '_'. Their meaning is the same in every program, but for
// batch_size, which counts the samples of one process in some of them: the line that names the key says what it counts
// here.
constexpr ForeignName synonyms[] = {
    {"batch_size", "train.global_batch"},
    {"lr", "optim.lr"},
    {"learning_rate", "optim.lr"},
    {"momentum", "optim.momentum"},
    {"weight_decay", "optim.weight_decay"},
    {"wd", "optim.weight_decay"},
    {"epochs", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"steps", "train.steps"},
    {"max_steps", "train.steps"},
    {"seed", "run.seed"},
};

// What the data decides, so that there is no key.
constexpr ForeignName foreign_without_key[] = {
    {"numclasses", "the classes are counted in the data. remove it"},
    {"nclasses", "the classes are counted in the data. remove it"},
    {"numlabels", "the classes are counted in the data. remove it"},
    {"inputshape", "the data has the shape of a sample. remove it"},
    {"inputsize", "the data has the shape of a sample. remove it"},
    {"inchannels", "the data has the number of channels. remove it"},
    {"vocabsize", "the data has the number of tokens. remove it"},
};

// With `typos`, a name with one wrong letter is found as well, unless it is short.
template <std::size_t count>
const char* find_in(const ForeignName (&table)[count], const std::string& name, bool typos = false) {
  constexpr std::size_t shortest = 7, longest = 40;  // letters of a name with a typing error
  if (typos && (name.size() < shortest || name.size() > longest)) return nullptr;
  for (const ForeignName& each : table)
    if (name == each.name || (typos && edit_distance(name, each.name) == 1)) return each.key;
  return nullptr;
}

}  // namespace

std::string bare_name(const std::string& written) {
  const auto dot = written.rfind('.');
  std::string out;
  for (const char c : dot == written.npos ? written : written.substr(dot + 1))
    if (c != '_' && c != '-') out += char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

const std::vector<KeyAlias>& key_synonyms() {
  static const std::vector<KeyAlias> table = [] {
    std::vector<KeyAlias> out;
    const auto add = [&](const std::string& name, const char* key) {
      if (name != key) out.push_back({name, key});
      if (name.find('_') == name.npos) return;
      std::string dashed = name;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      out.push_back({dashed, key});
    };
    for (const auto& [name, key] : synonyms) {
      const std::string own = std::string(key).substr(0, std::string(key).find('.'));
      for (const std::string& section : std::set<std::string>{"", own + ".", "train."}) add(section + name, key);
    }
    return out;
  }();
  return table;
}

std::string key_of_foreign_name(const std::string& written, bool typos) {
  const std::string name = bare_name(written);
  for (const char* key :
       {find_in(foreign_training, name, typos), find_in(foreign_optimizers, name, typos),
        find_in(foreign_data, name, typos), find_in(foreign_networks, name, typos), find_in(foreign_runs, name, typos)})
    if (key) return key;
  return "";
}

std::string reason_without_key(const std::string& written) {
  const char* reason = find_in(foreign_without_key, bare_name(written));
  return reason ? reason : "";
}

}  // namespace millrace
