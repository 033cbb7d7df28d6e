"""The answer that follows from scores on test seeds, in each situation, and its sentences."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

import numpy as np
import pytest
import yaml
from rltune.agents.config import OnPolicyConfig, config_dict, make_config
from rltune.answer.model import Answer, Circumstances, Finalist
from rltune.answer.ranking import build_answer
from rltune.runs.search_spec import SearchSpec
from rltune.runs.train_spec import TrainSpec, retrain_command

GOOD = Circumstances(full_budget_trials=20, sampled_trials=30, startup_trials=10, sampler="tpe")


def finalist(trial, scores, origins=("sampler",), objective=500.0, **more):
    seeds = {100 + i: score for i, score in enumerate(scores)}
    return Finalist(
        trial=trial, origins=origins, config={"n": trial}, objective=objective, seeds=seeds, **more
    )


def default(scores, **more):
    return finalist(0, scores, ("default",), **more)


def text(answer):
    return " ".join(answer.sentences)


def test_a_clear_winner_is_named_with_its_interval_and_its_chance():
    answer = build_answer(
        [default([300, 310, 320, 330, 340]), finalist(7, [480, 490, 495, 500, 500])], GOOD
    )
    assert answer.best.trial == 7
    assert answer.beats_default
    assert (
        "Use trial 7: it beats the agent's defaults, 495.0 against 320.0 (+175.0, 90 % interval "
        in text(answer)
    )
    assert "probability of 100 % (95 % interval 64 to 100 %)" in text(answer)
    assert "95 % interval 480.0 to 500.0" in text(answer)
    assert "worst score 480.0" in text(answer)
    assert "The defaults are worse, beyond chance." in text(answer)
    assert answer.warnings == ()


def test_all_others_are_named_together_where_there_are_several():
    finalists = [finalist(n, [300, 310, 320, 330, 340 + n]) for n in (3, 4)]
    answer = build_answer(
        [default([300, 310, 320, 330, 340]), *finalists, finalist(7, list(range(480, 490)))], GOOD
    )
    assert "All other finalists are worse, beyond chance." in text(answer)


def test_every_score_is_said_to_be_the_same_only_where_it_is():
    assert "the search never saw, every score is 500.0." in text(build_answer([default([500] * 2)]))
    answer = build_answer([default([500.0] * 19 + [400.0])])
    assert answer.ranking[0].low == answer.ranking[0].high == 500.0
    assert "every score" not in text(answer)
    assert "their worst score 400.0" in text(answer)


def test_when_the_default_is_not_beaten_it_is_the_answer_and_the_higher_score_is_named():
    answer = build_answer(
        [default([450, 470, 480, 490, 500]), finalist(7, [462, 478, 485, 495, 500])], GOOD
    )
    assert answer.ranking[0].trial == 7
    assert answer.best.is_default
    assert answer.beats_default is False
    assert "the search found nothing that is above them by more than its standard error." in text(
        answer
    )
    assert "Trial 7 scored 486.0 against 480.0 (+6.0, 90 % interval " in text(answer)
    assert "More than 100 test seeds each would be needed to prove a lead over" in text(answer)
    assert "a lead that is not proven" in text(answer)


def test_one_catastrophic_seed_keeps_a_configuration_from_beating_the_default():
    answer = build_answer(
        [default([440, 445, 450, 455, 460]), finalist(7, [9, 500, 500, 500, 500])], GOOD
    )
    assert answer.best.is_default


def test_the_winner_is_compared_with_each_of_the_known_good_settings():
    answer = build_answer(
        [
            default([100, 110, 120, 130, 140]),
            finalist(1, [300, 310, 320, 330, 490], ("start:0",)),
            finalist(2, [90, 95, 99, 100, 105], ("start:1",)),
            finalist(7, [475, 485, 495, 500, 500]),
        ],
        GOOD,
    )
    assert answer.best.trial == 7
    assert "Above known-good settings 1 it scores with a probability of 92 %" in text(answer)
    assert "Above known-good settings 2 it scores with a probability of 100 %" in text(answer)
    known_good = next(ranked for ranked in answer.ranking if ranked.trial == 1)
    assert list(known_good.over_known_good) == [2]
    assert Answer.from_dict(yaml.safe_load(yaml.safe_dump(answer.to_dict()))) == answer


def test_what_is_ahead_by_more_than_its_standard_error_is_named_without_a_claim():
    scores = [380, 450, 470, 490, 500]
    answer = build_answer([default([300, 350, 420, 440, 480]), finalist(7, scores)], GOOD)
    assert answer.best.trial == 7
    assert answer.beats_default is False
    assert (
        "Use trial 7: it scored 470.0, the agent's defaults 403.3 (+66.7, 90 % interval "
        in text(answer)
    )
    assert "can still be luck. Trained on a new seed, it scores above" in text(answer)
    # The same, but for 50 less: about as good as the defaults.
    nearer = finalist(7, [x - 50 for x in scores])
    assert build_answer([default([300, 350, 420, 440, 480]), nearer], GOOD).best.is_default


def test_one_seed_each_does_not_unseat_the_defaults():
    assert build_answer([default([100]), finalist(7, [500])], GOOD).best.is_default


def test_known_good_settings_that_are_no_better_than_the_defaults_are_not_the_answer():
    answer = build_answer(
        [
            default([200, 300, 400, 500, 500]),
            finalist(1, [210, 310, 410, 500, 500], ("start:0",)),
            finalist(7, [420, 480, 490, 500, 500]),
        ],
        GOOD,
    )
    assert answer.best.trial == 7


def test_who_diverged_does_not_unseat_the_defaults_nor_do_they_if_they_diverged():
    scores = [math.nan, 490, 495, 500, 500]
    assert build_answer([default([300] * 5), finalist(7, scores)], GOOD).best.is_default
    answer = build_answer([default(scores), finalist(7, [499, 500, 500, 500, 500])], GOOD)
    assert answer.best.trial == 7


def test_defaults_that_diverged_on_most_seeds_are_not_named_before_who_diverged_on_one():
    nan = math.nan
    answer = build_answer([default([nan, nan, nan, 5]), finalist(7, [nan, 400, 410, 420])], GOOD)
    assert answer.best.trial == 7
    assert answer.sentences[0].startswith(
        "Use trial 7: it scored 405.0, the agent's defaults diverged: a lead that is not proven."
    )
    assert "its scores are diverged, 400.0, 410.0, 420.0: too few for an interval" in text(answer)


def test_one_seed_far_above_the_defaults_is_not_held_against_a_finalist():
    """A dear configuration, for which a time limit left one re-training."""
    answer = build_answer([default([105, 139]), finalist(7, [500], objective=499.0)], GOOD)
    assert answer.best.trial == 7
    assert answer.beats_default is False
    assert "With a single seed it can be luck." in text(answer)
    near = build_answer([default([105, 139]), finalist(7, [125], objective=499.0)], GOOD)
    assert near.best.is_default  # within what seeds differ by


def test_two_seeds_that_agree_by_chance_do_not_unseat_the_defaults():
    defaults = default([-76, -93, -25])
    lucky = [finalist(7, [-60, -60.5]), finalist(8, [-120, 10])]
    assert build_answer([defaults, lucky[0]], GOOD).best.is_default
    assert build_answer([defaults, *lucky], GOOD).best.is_default
    clear = finalist(7, [20, 20.5])
    assert build_answer([defaults, clear, lucky[1]], GOOD).best.trial == 7


def test_where_nobody_has_two_seeds_the_search_has_to_agree():
    def named(tuning):
        finalists = [default([122], objective=102.0), finalist(7, [500], objective=tuning)]
        return build_answer(finalists, GOOD).best.trial

    assert named(499.0) == 7
    assert named(90.0) == 0
    assert named(None) == 0


def test_of_equal_test_scores_the_higher_tuning_score_decides():
    rows = [default([100, 110]), finalist(5, [500, 500], objective=450.0),
            finalist(7, [500, 500], objective=490.0)]  # fmt: skip
    assert build_answer(rows, GOOD).best.trial == 7


def test_who_was_not_trained_again_is_named_best_first():
    rows = [default([100, 110]), finalist(5, [120, 130]), finalist(8, [], objective=420.0),
            finalist(7, [], objective=430.0)]  # fmt: skip
    answer = build_answer(rows, GOOD)
    assert answer.best.trial == 5
    assert answer.warnings[0] == (
        "Trial 7 and trial 8 were not trained on test seeds: nobody knows how much of their tuning "
        "score is luck."
    )


def test_the_defaults_are_no_answer_when_nobody_else_could_be_tested():
    about = replace(GOOD, best_of_search=(7, 499.0))
    answer = build_answer([default([100, 110]), finalist(7, [], objective=499.0)], about)
    assert answer.best is None
    assert "Trial 7 scored 499.0, the best of the search" in text(answer)
    assert build_answer([default([100, 110])], about).best.is_default  # there was nobody else
    alone = build_answer([default([]), finalist(7, [480, 490], objective=499.0)], about)
    assert alone.best.trial == 7
    assert "The agent's defaults were not trained on test seeds" in text(alone)
    assert alone.warnings[0].startswith("The defaults were not trained on test seeds: nobody knows")


def test_among_ties_known_good_settings_come_before_the_search():
    answer = build_answer(
        [
            default([100, 110, 120, 130, 140]),
            finalist(1, [470, 480, 490, 495, 500], ("start:0",)),
            finalist(7, [474, 485, 492, 500, 500]),
        ],
        GOOD,
    )
    assert answer.ranking[0].trial == 7
    assert answer.best.trial == 1
    assert answer.beats_default
    assert "Use known-good settings 1: they beat the agent's defaults" in text(answer)
    assert "known-good settings come before what the search found" in text(answer)


def test_who_ties_with_the_best_but_does_not_beat_the_default_is_not_named():
    """A tie with the best is not enough: the known-good settings here may be no better at all."""
    answer = build_answer(
        [
            default([100, 110, 120, 130, 140]),
            finalist(1, [90, 105, 500, 500, 500], ("start:0",)),
            finalist(7, [475, 485, 495, 500, 500]),
        ],
        GOOD,
    )
    known_good = next(ranked for ranked in answer.ranking if ranked.trial == 1)
    assert known_good.tied
    assert answer.best.trial == 7


def test_everything_at_the_ceiling_is_a_tie_and_said():
    answer = build_answer(
        [default([500] * 5), finalist(3, [500] * 5), finalist(8, [500] * 5)], GOOD
    )
    assert answer.best.is_default
    assert len(answer.ties) == 3
    assert "Trial 3 and trial 8 scored the same as the defaults. Within a standard error" in text(
        answer
    )
    assert "every score is 500.0" in text(answer)
    assert "The defaults came first in the search with 500.0 and reached 500.0" in text(answer)
    assert "their tuning score was no illusion" in text(answer)
    assert any("too easy" in warning for warning in answer.warnings)


def test_the_tuning_gap_is_that_of_the_best_of_the_search():
    """PITFALLS: 500 while tuning, 381 on a fresh seed."""
    answer = build_answer(
        [
            default([500] * 5, objective=480.0),
            finalist(7, [381, 400, 420, 467, 500], objective=500.0, objective_mean=300.0),
            finalist(9, [400, 410, 420, 430, 440], objective=500.0, objective_mean=350.0),
        ],
        GOOD,
    )
    assert answer.incumbent == 9
    assert answer.tuning_gap == pytest.approx(80.0)
    assert "Trial 9 came first in the search with 500.0, but reached only 420.0" in text(answer)
    assert "too good by 80.0" in text(answer)


def test_a_diverged_retraining_counts_as_the_worst_and_is_said():
    answer = build_answer(
        [default([300, 310, 320, 330, 340]), finalist(7, [math.nan, 490, 495, 500, 500])], GOOD
    )
    seven = next(ranked for ranked in answer.ranking if ranked.trial == 7)
    assert seven.worst == seven.low == -math.inf
    assert seven.iqm == pytest.approx(495.0)
    assert answer.best.is_default  # its one bad seed is enough for a doubt
    assert any(
        "Trial 7 diverged or failed on test seed 100" in warning for warning in answer.warnings
    )
    assert "nan" not in (text(answer) + " ".join(answer.warnings)).lower()


def test_when_all_diverge_there_is_no_answer():
    answer = build_answer([default([math.nan] * 5), finalist(7, [math.nan] * 5)], GOOD)
    assert "no answer" in text(answer)
    assert answer.best is answer.winner is answer.beats_default is None


def test_missing_seeds_are_said():
    few = build_answer([default([300, 310, 320]), finalist(7, [480, 490, 500])], GOOD)
    assert "Only 3 of the planned 5 test seeds could be run." in few.warnings
    one = build_answer([default([300] * 5), finalist(7, [480, 490])], GOOD)
    assert any("Trial 7 ran on fewer than the planned 5" in warning for warning in one.warnings)


def test_too_few_seeds_to_show_anything_are_said():
    finalists = [default([1, 2, 3])] + [finalist(t, [8, 9, 10]) for t in range(1, 5)]
    answer = build_answer(finalists, replace(GOOD, planned_seeds=3))
    assert answer.best.trial == 1
    assert not answer.beats_default
    assert any(
        "no difference among 5 finalists can be shown" in warning for warning in answer.warnings
    )


def test_a_single_finalist():
    alone = build_answer([default([480, 490, 495, 500, 500])], GOOD)
    assert "there was no other finalist" in text(alone)
    assert "lead" not in text(alone)
    unknown = build_answer([finalist(7, [480])], replace(GOOD, planned_seeds=1))
    assert "The agent's defaults were not trained on test seeds" in text(unknown)
    assert "On the only test seed it scored 480.0" in text(unknown)
    assert unknown.beats_default is None


def test_no_finalist_with_a_score():
    answer = build_answer([default([])], GOOD)
    assert answer.best is None
    assert "there is no answer" in text(answer)
    answer = build_answer([default([])], replace(GOOD, best_of_search=(3, 250.0)))
    assert answer.best is None
    assert "Trial 3 scored 250.0, the best of the search, but nothing was trained" in text(answer)


def test_what_weakens_the_search_is_said():
    circumstances = Circumstances(
        full_budget_trials=2,
        sampled_trials=7,
        startup_trials=10,
        sampler="tpe",
        cut_by_time_limit=True,
    )
    warnings = " ".join(build_answer([default([1.0] * 5)], circumstances).warnings)
    assert "Only 2 trials ran the whole budget" in warnings
    assert "sampler (tpe) was still in its random start-up phase, 7 of 10 trials" in warnings
    assert "time limit" in warnings


def test_negative_scores_rank_the_right_way_round():
    answer = build_answer(
        [default([-200.0, -190, -195, -180, -185]), finalist(4, [-75.0, -80, -82, -74, -90])], GOOD
    )
    assert answer.best.trial == 4
    assert "-79.0 against -190.0" in text(answer)


def test_an_answer_survives_yaml():
    answer = build_answer(
        [
            default([math.nan, 310, 320, 330, 340]),
            finalist(7, list(np.array([480.0, 490, 495, 500, 500]))),
        ],
        GOOD,
    )
    stored = yaml.safe_load(yaml.safe_dump(answer.to_dict()))
    for ranked in stored["ranking"]:  # RunDir writes every key as a text
        ranked["scores"] = {str(seed): score for seed, score in ranked["scores"].items()}
    stored["of a later version"] = 1
    assert Answer.from_dict(stored) == answer


def planted(lucky, sound, seed, rivals=4):
    """Give the default and lucky rivals their test scores; the rivals tuned to the ceiling."""
    rng = np.random.default_rng(seed)
    finalists = [default(sound(rng), objective=450.0)]
    finalists += [finalist(i + 1, lucky(rng), objective=500.0) for i in range(rivals)]
    return build_answer(finalists, GOOD)


def clipped(mean, deviation):
    return lambda rng: np.minimum(500, rng.normal(mean, deviation, 5))


@pytest.mark.parametrize(
    ("lucky", "sound"),
    [
        (clipped(450, 30), clipped(450, 30)),  # no better than the default
        (clipped(430, 60), clipped(450, 30)),  # worse and less steady
    ],
)
def test_a_planted_lucky_configuration_is_not_named_better_than_the_default(lucky, sound):
    answers = [planted(lucky, sound, seed) for seed in range(100)]
    assert sum(answer.beats_default for answer in answers) <= 5
    assert sum("beats the agent's defaults" in text(answer) for answer in answers) <= 5
    # Taking whoever comes first in the ranking would have named one of the lucky ones.
    assert sum(not answer.ranking[0].is_default for answer in answers) > 50


@pytest.mark.parametrize("rivals", [1, 4])
def test_a_planted_configuration_that_is_worse_is_rejected(rivals):
    """It was at the ceiling on its tuning seed; on others it is 100 below the defaults."""
    answers = [planted(clipped(350, 60), clipped(450, 60), n, rivals) for n in range(100)]
    assert sum(answer.best.is_default for answer in answers) >= 95


def test_a_configuration_that_is_truly_better_is_mostly_found():
    found = sum(
        not planted(clipped(480, 20), clipped(300, 50), seed).best.is_default for seed in range(40)
    )
    assert found >= 36


def test_the_command_names_what_differs_in_full_and_survives_the_shell():
    defaults = config_dict(OnPolicyConfig())
    values = {
        "learning_rate": "lin_0.0010323423423423421",
        "gamma": 0.9812345678901234,
        "net_arch": [256, 256],
        "normalize_rewards": not defaults["normalize_rewards"],
        "n_envs": 8,
    }
    config = config_dict(make_config(OnPolicyConfig, values))
    line = retrain_command(
        "ppo",
        "my module:Env",
        50_000,
        config,
        defaults,
        103,
        env_kwargs={},
        controls={},
        evaluation={},
    )
    words = shlex.split(line)
    assert words[:7] == ["rltune", "train", "ppo", "--env", "my module:Env", "-n", "50000"]
    assert words[-2:] == ["--seed", "103"]
    flags = dict(zip(words[7:-2:2], words[8:-2:2], strict=True))
    assert set(flags) == {"--learning-rate", "--gamma", "--net-arch", "--normalize-rewards"}
    read = {name.lstrip("-").replace("-", "_"): value for name, value in flags.items()}
    assert config_dict(make_config(OnPolicyConfig, read)) == config
    assert "\n" not in line


def test_the_command_makes_the_same_environment_and_ends_as_early_without_a_secret():
    env_kwargs, controls = {"size": 5, "api_key": "short"}, {"target_reward": 400.0}
    line = retrain_command(
        "ppo",
        "CartPole-v1",
        100,
        {},
        {},
        7,
        env_kwargs=env_kwargs,
        controls=controls,
        evaluation={},
    )
    assert shlex.split(line)[7:] == [
        "--env-kwargs", '{"size": 5, "api_key": "***"}', "--target-reward", "400.0", "--seed", "7",
    ]  # fmt: skip


def test_the_command_evaluates_as_often_as_the_search_did():
    spec = SearchSpec(
        agent="ppo", env="CartPole-v1", space={}, budget=50_000, evaluations=9, eval_episodes=3
    )
    line = retrain_command(
        "ppo", "CartPole-v1", 50_000, {}, {}, 7,
        env_kwargs={}, controls={}, evaluation=spec.evaluation,
    )  # fmt: skip
    assert shlex.split(line)[7:] == ["--eval-freq", "5556", "--eval-episodes", "3", "--seed", "7"]
    training = TrainSpec(agent="ppo", env="CartPole-v1", total_timesteps=50_000, eval_freq=5556)
    at, points = 0, []
    while at < 50_000:
        at = training.next_evaluation(at)
        points.append(at)
    assert len(points) == len(spec.evaluate_at)
    assert all(abs(a - b) < 9 for a, b in zip(points, spec.evaluate_at, strict=True))
