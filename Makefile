# The usual commands: make, make run, make test. Each target prints the commands that it runs.
SHELL := /bin/bash
BUILD ?= build
RANKS ?= 2
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
MILLRACE := $(BUILD)/millrace
DATA := data/fashion-mnist
SOURCE := /usr/share/datasets/fashion-mnist
# Ninja keeps all cores busy. make waits for the last file of each room.
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)

# Lets mpirun run as root and start more ranks than cores, with Open MPI 4 and 5. The ranks bind themselves to cores.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export OMPI_MCA_rmaps_base_oversubscribe := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
MPIRUN := mpirun --bind-to none -n

# `make program` builds the executable without the tests.
.PHONY: all build program deps data run test test-long faults bench diagnosis-table scaling-table peers parity gpu-check gpu-sanitize pictures format sanitize install clean

all: build
	@cat $(BUILD)/found.txt
	@echo "built $(MILLRACE). next: make run, make test, or $(MILLRACE) --help"

deps:
	@scripts/deps.sh

build program: $(BUILD)/cmake_install.cmake
	@GNUMAKEFLAGS=--no-print-directory cmake --build $(BUILD) -j $(JOBS) $(if $(filter program,$@),--target millrace) \
	| { grep --line-buffered -v -e "^\[.*Built target" -e "^ninja: no work" || true; }; exit $${PIPESTATUS[0]}

# The target is not CMakeCache.txt, because that file also exists after a failed configuration, which must be repeated.
$(BUILD)/cmake_install.cmake:
	@command -v cmake >/dev/null || { echo "cmake is missing (Debian package cmake). install it: make deps" >&2; exit 1; }
	cmake -S . -B $(BUILD)

data: deps program
	@if [ -e $(DATA)/train-00000.h5 ] && [ -e $(DATA)/valid-00000.h5 ]; then echo "data: $(DATA) is packed already"; else set -ex; \
	$(MPIRUN) $(RANKS) $(MILLRACE) pack --x $(SOURCE)/train-images-idx3-ubyte.gz --y $(SOURCE)/train-labels-idx1-ubyte.gz --out $(DATA) --prefix train --overwrite; \
	$(MPIRUN) $(RANKS) $(MILLRACE) pack --x $(SOURCE)/t10k-images-idx3-ubyte.gz --y $(SOURCE)/t10k-labels-idx1-ubyte.gz --out $(DATA) --prefix valid --no-shuffle --overwrite; fi

run: data
	scripts/run.sh $(RANKS) $(MILLRACE) train -c inputs/fashion-mnist.cfg

test: deps build
	ctest --test-dir $(BUILD) -LE long -j 4 --output-on-failure

test-long: build
	@scripts/deps.sh debootstrap python3-h5py $(shell grep -qx ID=debian /etc/os-release && echo chromium)
	ctest --test-dir $(BUILD) -L long -j 3 --output-on-failure

# Injects faults into short trainings and judges how they end; about five seconds for each of N. SEED=7 repeats a list of
# faults, TRIAL=12 one of them, KIND="kill-rank full-tmpdir" selects kinds. Some kinds need root.
faults: N ?= 200
faults: deps program
	cmake --build $(BUILD) -j $(JOBS) --target faulty_calls
	python3 tests/faults/faults.py --millrace $(MILLRACE) --mpiexec mpirun --faulty-calls $(BUILD)/tests/faults/libfaulty_calls.so \
	  --trials $(N) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND)) $(if $(TRIAL),--trial $(TRIAL))

bench: data
	$(MPIRUN) 1 $(MILLRACE) bench loader
	$(MPIRUN) 1 $(MILLRACE) bench loader -c inputs/fashion-mnist.cfg
	$(MPIRUN) 1 $(MILLRACE) bench loader --epoch 100000 --sample-bytes 48KiB --workers 1
	$(MPIRUN) 1 $(MILLRACE) bench storage --workload retinanet --accelerator b200 --accelerators 2
	$(MPIRUN) 1 $(MILLRACE) bench storage --workload unet3d --accelerator b200 --turns 1 --steps 20
	$(MPIRUN) 1 $(MILLRACE) bench storage --workload resnet50 --accelerator h100 --accelerators 6
	$(MPIRUN) 1 $(MILLRACE) bench storage --workload cosmoflow --accelerator h100
	$(MPIRUN) 2 $(MILLRACE) bench comm
	$(MPIRUN) 1 $(MILLRACE) bench step
	$(MPIRUN) 2 $(MILLRACE) bench step

# Creates bottlenecks on purpose, and compares the gain that the verdict predicts with the gain of following its advice.
# Prints the tables of docs/benchmarks/2026-11-diagnosis-table.md, about 15 minutes each. KINDS="disk sums" selects
# bottlenecks for the first table; DRAW="--seed 7 --count 20" selects pairs of bottlenecks for the second.
diagnosis-table: deps build
	tests/tables/diagnosis_table.sh $(MILLRACE) mpirun $(BUILD)/tests/app/libfaulty_files.so \
	  $(BUILD)/tests/faults/libfaulty_calls.so $(KINDS)
	python3 tests/tables/two_bottlenecks.py $(MILLRACE) mpirun $(BUILD)/tests/app/libfaulty_files.so $(DRAW)

# Compares the predictions of `millrace scaling` with real runs: the table of
# docs/benchmarks/2026-11-scaling-table.md, about ten minutes. KINDS="shared hosts slow real" selects parts of it.
scaling-table: deps program
	tests/tables/scaling_table.sh . $(MILLRACE) mpirun $(KINDS)

# Compares millrace with PyTorch on the CPU: training of several networks, and data loading. Takes one to two hours. The
# table is also written to build/peers.json, and the rows that no other work disturbed to build/peers-DATE.md. Choose
# with OPTIONS="--quick", OPTIONS="--only mlp", OPTIONS="--neighbour" (only the training beside a busy loop) and others.
peers: deps program
	scripts/with-pytorch.sh $(BUILD) tests/peers/cpu.py $(BUILD) $(OPTIONS)

# Records anew what PyTorch computes, and compares networks and schedules with it. `make test` compares them with the
# figures in tests/parity/recorded.
parity: deps build
	mkdir -p $(BUILD)/parity
	PACKAGES="torchvision timm" scripts/with-pytorch.sh $(BUILD) tests/parity/record.py $(BUILD)/parity
	MILLRACE_PARITY=$(abspath $(BUILD))/parity $(BUILD)/tests/model/test_model --gtest_filter=*Parity*-Pt2Parity.*
	MILLRACE_PARITY=$(abspath $(BUILD))/parity $(BUILD)/tests/train/test_train --gtest_filter=*Parity*
	PACKAGES="torchvision timm transformers safetensors" scripts/with-pytorch.sh $(BUILD) tests/parity/state_dicts.py $(BUILD)/parity/state_dicts.json
	MILLRACE_PARITY=$(abspath $(BUILD))/parity $(BUILD)/tests/weights/test_weights
	PACKAGES="torchvision timm transformers safetensors" scripts/with-pytorch.sh $(BUILD) tests/parity/exchanged.py $(MILLRACE)
	mkdir -p $(BUILD)/parity/onnx
	MILLRACE_ONNX_FILES=$(BUILD)/parity/onnx $(BUILD)/tests/onnx/test_onnx --gtest_filter=*.Record
	PACKAGES="onnx onnxruntime safetensors" scripts/with-pytorch.sh $(BUILD) tests/parity/onnx_outputs.py --record $(BUILD)/parity/onnx $(BUILD)/parity/onnx.json
	MILLRACE_PARITY=$(abspath $(BUILD))/parity $(BUILD)/tests/onnx/test_onnx --gtest_filter=OnnxModel.*
	PACKAGES="onnx onnxruntime safetensors" scripts/with-pytorch.sh $(BUILD) tests/parity/onnx_outputs.py $(MILLRACE)
	mkdir -p $(BUILD)/parity/pt2
	scripts/with-pytorch.sh $(BUILD) tests/parity/pt2_record.py $(BUILD)/parity/pt2
	MILLRACE_PARITY=$(abspath $(BUILD))/parity/pt2 $(BUILD)/tests/model/test_model --gtest_filter=Pt2Parity.*
	for ranks in 1 2; do python3 tests/parity/pt2_runs.py $(MILLRACE) mpirun $$ranks --recorded $(BUILD)/parity/pt2 || exit 1; done
	for ranks in 2 3; do python3 tests/parity/pt2_runs.py $(MILLRACE) mpirun $$ranks synchronised --recorded $(BUILD)/parity/pt2 || exit 1; done
	PACKAGES="torchvision timm transformers monai einops" scripts/with-pytorch.sh $(BUILD) tests/parity/pt2_table.py $(MILLRACE) --into $(BUILD)/parity/pt2_networks.json

# Needs a GPU. Runs the GPU tests and benchmarks, compares training with the CPU, and prints a short table at the end.
gpu-check: deps build
	scripts/gpu-check.sh $(BUILD)

# racecheck runs only on millrace's own kernels. With the kernels of cuDNN, cuBLAS and NCCL it would take an hour.
SANITIZER = timeout -k 5 280 $(firstword $(shell command -v compute-sanitizer) /usr/local/cuda/bin/compute-sanitizer)
gpu-sanitize: deps build
	$(SANITIZER) --tool memcheck --error-exitcode 1 $(BUILD)/tests/gpu/test_gpu --gtest_filter=-Graphed*
	$(SANITIZER) --tool racecheck --error-exitcode 1 $(BUILD)/tests/gpu/test_gpu --gtest_filter=-Conv*:Linear*:Nccl*:Graphed*

# Makes the pictures of README.md and docs/.
pictures: data
	scripts/pictures.sh $(MILLRACE)

format:
	clang-format -i $$(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh')

sanitize: deps
	scripts/sanitize.sh address
	scripts/sanitize.sh thread

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD) build-asan build-tsan build-trixie build-fuzz
