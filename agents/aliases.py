"""Aliases of hyperparameters: the names that other libraries have for them."""

from __future__ import annotations

from collections.abc import Iterable

# Names that users of CleanRL, RLlib and xagents type, and what they are called here.
ALIASES = {
    "num_envs": "n_envs",
    "replay_buffer_size": "buffer_size",
    "train_frequency": "train_freq",
    "target_network_frequency": "target_update_interval",
    "start_e": "exploration_initial_eps",
    "end_e": "exploration_final_eps",
    "policy_frequency": "policy_delay",
    "policy_noise": "target_policy_noise",
    "noise_clip": "target_noise_clip",
    "num_steps": "n_steps",
    "num_minibatches": "n_minibatches",
    "minibatch_size": "batch_size",
    "sgd_minibatch_size": "batch_size",
    "update_epochs": "n_epochs",
    "num_epochs": "n_epochs",
    "num_sgd_iter": "n_epochs",
    "lr": "learning_rate",
    "lambda": "gae_lambda",
    "lambda_": "gae_lambda",
    "clip_coef": "clip_range",
    "clip_param": "clip_range",
    "vf_clip_param": "clip_range_vf",
    "entropy_coeff": "ent_coef",
    "vf_loss_coeff": "vf_coef",
    "grad_clip": "max_grad_norm",
    "kl_target": "target_kl",
    "norm_adv": "normalize_advantage",
    "adam_epsilon": "optimizer_eps",
    "adam_eps": "optimizer_eps",
    "fcnet_hiddens": "net_arch",
    "fcnet_activation": "activation",
    "activation_fn": "activation",
    "num_envs_per_env_runner": "n_envs",
    "target_network_update_freq": "target_update_interval",
    "num_steps_sampled_before_learning_starts": "learning_starts",
    "input_": "input",
    "entropy_coef": "ent_coef",
    "value_loss_coef": "vf_coef",
    "grad_norm": "max_grad_norm",
    "opt_epsilon": "optimizer_eps",
    "lam": "gae_lambda",
    "ppo_epochs": "n_epochs",
    "mini_batches": "n_minibatches",
    "buffer_max_size": "buffer_size",
    "buffer_initial_size": "learning_starts",
    "buffer_batch_size": "batch_size",
    "epsilon_start": "exploration_initial_eps",
    "epsilon_end": "exploration_final_eps",
    "target_sync_steps": "target_update_interval",
    "step_noise_coef": "noise_std",
    "policy_noise_coef": "target_policy_noise",
    "max_kl": "target_kl",
    "cg_iterations": "cg_max_steps",
    "critic_iterations": "n_critic_updates",
    "ema_alpha": "average_decay",
    "delta": "trust_region_delta",
    "epsilon": "importance_eps",
    "epsilon_decay_steps": "exploration_decay_steps",
    "beta1": "adam_beta1",
    "beta2": "adam_beta2",
    "clip_norm": "clip_range",
    "advantage_epsilon": "advantage_eps",
    "actor_iterations": "line_search_max_iter",
    "fvp_n_steps": "sub_sampling_factor",
    "actor_lr": "actor_learning_rate",
    "critic_lr": "critic_learning_rate",
    "policy_lr": "actor_learning_rate",
    "q_lr": "critic_learning_rate",
    "alpha_lr": "temperature_learning_rate",
    "alpha_learning_rate": "temperature_learning_rate",
    "reward_scale_factor": "reward_scale",
    "gradient_clipping": "max_grad_norm",
}


def own_name(name: str, known: Iterable[str]) -> str | None:
    """Return the one of the ``known`` names that ``name`` means; None: there is none.

    Dashes and aliases are accepted, in both directions: RLlib's agents are known under its names.
    """
    plain = name.lstrip("-").replace("-", "_")
    if plain in known:
        return plain
    meaning = ALIASES.get(plain, plain)
    return next((other for other in known if ALIASES.get(other, other) == meaning), None)
