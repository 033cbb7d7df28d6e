"""A script that trains, as people have them: it knows nothing of rltune."""

import argparse
import csv
import json
import math
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--quality", type=float, default=0.5)
parser.add_argument("--hidden-size", type=int, default=64)
parser.add_argument("--total-timesteps", type=int, default=1000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--write", default="regex")
parser.add_argument("--fail", action="store_true")
parser.add_argument("--resume", default="")
args = parser.parse_args()

folder = Path("logs")
folder.mkdir(exist_ok=True)
with open("begins.txt", "a") as begins:
    begins.write(f"{os.getpid()} {args.resume or 'new'} {' '.join(sys.argv[1:])}\n")
first = json.loads(Path(args.resume).read_text()) if args.resume else 0
if args.fail:
    print("loading data", flush=True)
    sys.exit("there is no data here")
if args.write == "tensorboard":
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), flush_secs=1)
rows = csv.writer(open(folder / "progress.csv", "a"))  # noqa: SIM115
if args.write == "csv":
    rows.writerow(["loss", "rollout/return", "time/steps"])
for step in range(first + 50, args.total_timesteps + 1, 50):
    time.sleep(args.sleep)
    value = args.quality * (1 - math.exp(-step / 300)) + args.seed % 7 / 1000
    Path("state.tmp").write_text(json.dumps(step))
    Path("state.tmp").replace("state.json")
    if args.write == "regex":
        print(f"global_step={step}, episodic_return=[{value}]")
    elif args.write == "json":
        print(json.dumps({"step": step, "score": value, "loss": 1 - value, "note": "a"}))
    elif args.write == "csv":
        rows.writerow([1 - value, value, step])
    elif args.write == "tensorboard":
        writer.add_scalar("losses/loss", 1 - value, step)
        writer.add_scalar("charts/episodic_return", value, step)
print("done")
