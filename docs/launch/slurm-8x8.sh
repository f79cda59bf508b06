#!/bin/bash
# The paper's recipe on 8 machines with 8 H100 each: 128 prompts x 512 answers a step, context
# 16,384. Written and dry-run; never run on GPUs.
#   sbatch docs/launch/slurm-8x8.sh /shared/math.jsonl /shared/runs/brorl
#SBATCH --job-name=brorl
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
#SBATCH --mem=0
#SBATCH --time=168:00:00
set -euo pipefail
data=$1 run=$2
source "${BRORL_VENV:?a virtual environment with brorl[verl] and vLLM, on every node}/bin/activate"

launch=(brorl launch "${RECIPE:-brorl}" "data.train=$data" eval.max_new_tokens=null
  --nodes 8 --gpus-per-node 8 --max-prompt-tokens 1024 --out "$run"
  --verl actor_rollout_ref.rollout.gpu_memory_utilization=0.6)
if [ -n "${DRY_RUN:-}" ]; then exec "${launch[@]}" --dry-run; fi

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address="$head:6379"
srun --overlap --nodes=1 --ntasks=1 -w "$head" \
  ray start --head --port=6379 --num-gpus=8 --block &
sleep 30
srun --overlap --nodes=7 --ntasks=7 --exclude="$head" \
  ray start --address="$address" --num-gpus=8 --block &
sleep 60
"${launch[@]}" --ray-address "$address"
