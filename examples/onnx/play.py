"""Play an episode with a policy that `rltune export RUN --to onnx` wrote.

    python play.py policy.onnx [SEED]

It needs neither rltune nor PyTorch: onnxruntime, numpy and gymnasium are enough.
"""

from __future__ import annotations

import json
import sys
from collections import deque

import gymnasium
import numpy as np
import onnxruntime


def main(file: str, seed: int = 0) -> None:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    form = json.loads(about["observation"])
    shapes = {port["name"]: port for port in json.loads(about["inputs"])}
    env = make_env(about["env"], json.loads(about["env_kwargs"]), form)
    print(f"{about['agent']} on {about['env']}; an action is {about['action']}")

    obs, info = env.reset(seed=seed)
    frames = deque([frame(obs, env, form)] * form["frame_stack"], maxlen=form["frame_stack"])
    state = np.zeros((1, *shapes["state"]["shape"]), np.float32) if "state" in shapes else None
    total, steps, ended = 0.0, 0, False
    while not ended:
        port = shapes["observation"]
        inputs = {"observation": np.concatenate(frames).astype(port["dtype"])[None]}
        if "action_mask" in shapes:  # a bit for each action; 1: allowed
            mask = (info if form["action_mask"] == "info" else obs)["action_mask"]
            mask = np.concatenate(mask) if isinstance(mask, tuple) else np.ravel(mask)
            inputs["action_mask"] = mask.astype(bool)[None]
        if state is not None:  # 0 where an episode begins, then what the last step gave
            inputs["state"] = state
        action, *rest = session.run(None, inputs)
        state = rest[0] if rest else None
        obs, reward, terminated, truncated, info = env.step(action[0])
        frames.append(frame(obs, env, form))
        total, steps, ended = total + float(reward), steps + 1, terminated or truncated
    print(f"return {total:.6g} in {steps} steps")


def make_env(name: str, kwargs: dict, form: dict) -> gymnasium.Env:
    """Make the environment: put your own here. Atari games are preprocessed as in the training."""
    if not form["atari"]:
        return gymnasium.make(name, **kwargs)
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(name, frameskip=1, **kwargs)
    return gymnasium.wrappers.AtariPreprocessing(env, noop_max=30)


def frame(obs: object, env: gymnasium.Env, form: dict) -> np.ndarray:
    """Return one observation as the policy sees it: (size,), or an image (channels, rows, columns).

    Frames that are stacked stand one behind the other, images by their channels.
    """
    if form["kind"] == "mixed":
        sys.exit("this example does not read observations with images in a Dict or Tuple")
    space = env.observation_space
    if form.get("action_mask") == "observation":  # the mask is no part of what is seen
        rest = {key: part for key, part in space.spaces.items() if key != "action_mask"}
        obs = {key: obs[key] for key in rest}
        only = list(rest) == ["observation"]
        space = rest["observation"] if only else gymnasium.spaces.Dict(rest)
        obs = obs["observation"] if only else obs
    if form["kind"] == "flatten":
        return gymnasium.spaces.flatten(space, obs)
    image = np.asarray(obs)
    if form["layout"] == "channels_last":
        image = np.moveaxis(image, -1, 0)
    return image.reshape(-1, *image.shape[-2:])


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
