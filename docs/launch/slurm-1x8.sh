#!/bin/bash
# The paper's recipe on one machine with 8 H100. Written and dry-run; never run on GPUs.
#   sbatch docs/launch/slurm-1x8.sh /shared/math.jsonl /shared/runs/brorl
#SBATCH --job-name=brorl
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
#SBATCH --mem=0
#SBATCH --time=48:00:00
set -euo pipefail
data=$1 run=$2
source "${BRORL_VENV:?a virtual environment with brorl[verl] and vLLM, on every node}/bin/activate"

# The same command again goes on from the newest checkpoint.
brorl launch "${RECIPE:-brorl}" "data.train=$data" eval.max_new_tokens=null \
  --gpus-per-node 8 --max-prompt-tokens 1024 --out "$run" \
  --verl actor_rollout_ref.rollout.gpu_memory_utilization=0.6 ${DRY_RUN:+--dry-run}
