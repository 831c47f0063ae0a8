#!/usr/bin/env bash
# Parity and latency of a bundle's graphs on CUDA and TensorRT, in under 8 minutes on one GPU.
#
#   benchmarks/gpu_check.sh [BUNDLE] [JSON]     BUNDLE: exported with --provider tensorrt; without one, a small random
#                                               model is exported first (needs torch). JSON: gpu.json
#
# Exit codes: 0 graphs agree with the CPU, 1 one doesn't, 3 there is no GPU or something isn't installed, 124 it took
# longer than 8 minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bundle=${1:-}
json=${2:-gpu.json}
handrail=${HANDRAIL:-.venv/bin/handrail}

missing() { echo "gpu_check: $*" >&2; exit 3; }

command -v nvidia-smi >/dev/null || missing "no NVIDIA driver here: this check needs a GPU"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || missing "the driver finds no GPU"
command -v "$handrail" >/dev/null || missing "no $handrail: run 'make setup-export', or name another with HANDRAIL=..."

if [[ -z $bundle ]]; then
  bundle=$(mktemp -d)/tiny
  trap 'rm -rf "$(dirname "$bundle")"' EXIT
  timeout 240 "$handrail" export tiny:qwen3-vl --out "$bundle" --provider tensorrt
fi
timeout 230 "$handrail" bench gpu "$bundle" --json "$json"
echo "gpu_check: figures in $json"
