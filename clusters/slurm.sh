#!/usr/bin/env bash
# A search under Slurm: sbatch clusters/slurm.sh ppo --env CartPole-v1 --trials 100
# To resume one: RLTUNE_COMMAND=resume sbatch clusters/slurm.sh RUN
# It starts one Ray node per Slurm node. The clone (with its .venv: scripts/setup) and the runs are on the
# file system that the nodes share. Slurm ends everything when the search is done.
#SBATCH --job-name=rltune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
# With GPUs: #SBATCH --gpus-per-task=1, and --gpus-per-trial 1 (or 0.25) for rltune.
set -euo pipefail

clone=${RLTUNE_CLONE:-$SLURM_SUBMIT_DIR}
source "$clone/.venv/bin/activate"

# Two jobs may share a node, so each has its own ports and token.
port=$((20000 + SLURM_JOB_ID % 20000))
umask 077
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$SLURM_SUBMIT_DIR/.ray-token-$SLURM_JOB_ID
python -c 'import secrets; print(secrets.token_hex(16), end="")' > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

gpus=${SLURM_GPUS_PER_TASK:-0}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')
start="ray start --block --disable-usage-stats --num-cpus=$SLURM_CPUS_PER_TASK --num-gpus=${gpus##*:}"

srun --nodes=1 --ntasks=1 -w "$head" $start --head --node-ip-address="$ip" --port="$port" \
  --ray-client-server-port=0 --include-dashboard=false &
for _ in $(seq 60); do
  ray health-check --address "$ip:$port" 2>/dev/null && break
  sleep 2
done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    $start --address="$ip:$port" &
fi

# The driver runs here, on the head. Nodes that are still starting join the search later.
rltune "${RLTUNE_COMMAND:-run}" "$@" --address "$ip:$port" --plain &
search=$!
trap 'kill -TERM $search; wait $search' TERM   # Slurm's warning: stop cleanly, to resume later
wait $search
