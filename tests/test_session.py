"""Planning and recording one turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harbor_env.errors import GatewayError
from harbor_env.gateway.limits import Spent, Stop, within_budget
from harbor_env.gateway.native_names import natively_named
from harbor_env.gateway.options import Budget, PinnedSampling, SessionOptions
from harbor_env.gateway.session import new_session
from harbor_env.gateway.types import (
    Call,
    Finding,
    Generation,
    Message,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
    WeightSpan,
)
from tests.fake_renderer import END
from tests.play import Player, bash, player, result, said, system, user

START = (system("You are an agent."), user("Count the lines."))


def codes(play: Player, turn: int = -1) -> list[str]:
    return [finding.code for finding in play.session.tree.turns()[turn].findings]


def test_planning_changes_nothing() -> None:
    play = player()
    play.ask(*START, reply=said("One."))
    before = (len(play.session.tree), play.session.sampled_tokens, dict(play.session.findings))
    play.plan(*START)
    assert (len(play.session.tree), play.session.sampled_tokens, dict(play.session.findings)) == before


def test_a_reply_shows_minted_ids_true_usage_and_no_token_ids() -> None:
    play = player()
    planned = play.plan(*START)
    recorded = play.finish(planned, said("Look.", bash("ls")))
    reply = recorded.reply
    assert reply.message.tool_calls[0].id.startswith("call_")
    assert reply.usage.prompt_tokens == len(planned.prompt_ids) == recorded.turn.prompt_length
    assert reply.usage.completion_tokens == len(recorded.turn.sampled)
    assert recorded.turn.sampled[-1] == END


def test_a_prompt_over_the_window_is_refused_with_its_length_and_changes_nothing() -> None:
    play = player(window=20)
    with pytest.raises(GatewayError) as caught:
        play.plan(*START)
    assert caught.value.kind == "overflow"
    assert caught.value.window == 20
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 20
    assert len(play.session.tree) == 0


def test_the_output_limit_is_clamped_to_the_room_left_with_a_finding() -> None:
    play = player(window=200)
    play.ask(*START, reply=said("x"), max_tokens=32_000)
    planned = play.plan(*START, max_tokens=32_000)
    assert planned.sampling.max_tokens == 200 - len(planned.prompt_ids)
    assert "max_tokens_clamped" in codes(play)


def test_the_smallest_of_all_output_limits_wins() -> None:
    play = player(SessionOptions(sampling=PinnedSampling(max_tokens=50), budget=Budget(max_output_tokens=30)))
    assert play.plan(*START).sampling.max_tokens == 30
    assert play.plan(*START, max_tokens=10).sampling.max_tokens == 10


def test_a_training_session_samples_its_own_distribution_and_says_so_once() -> None:
    play = player(SessionOptions(sampling=PinnedSampling(temperature=0.8, seed=3)))
    asked = Sampling(temperature=0.0, top_p=0.5, top_k=4, seed=9)
    planned = play.plan(*START, sampling=asked)
    assert (planned.sampling.temperature, planned.sampling.top_p, planned.sampling.top_k) == (0.8, 1.0, -1)
    assert planned.sampling.seed == 3
    play.ask(*START, reply=said("x"), sampling=asked)
    play.ask(*START, reply=said("x"), sampling=asked)
    assert [codes(play, 0).count("sampling_ignored"), codes(play, 1).count("sampling_ignored")] == [1, 0]
    assert play.session.tree.turns()[0].facts["asked"]["top_p"] == 0.5


def test_calls_in_flight_side_by_side_say_that_they_fork_though_neither_saw_the_other() -> None:
    play = player()
    for planned in [play.plan(*START), play.plan(*START)]:
        first = play.finish(planned, said("One.")).reply.message
    assert [codes(play, 0), codes(play, 1)] == [[], ["root_other_history"]]
    history = (*START, first, user("Go on."))
    for planned in [play.plan(*history), play.plan(*history)]:
        play.finish(planned, said("Two."))
    assert [codes(play, 2), codes(play, 3)] == [[], ["branch"]]


def test_an_evaluation_uses_what_the_harness_asks_where_nothing_is_pinned() -> None:
    play = player(SessionOptions(purpose="eval", sampling=PinnedSampling(top_p=0.9)))
    sampling = play.plan(*START, sampling=Sampling(temperature=0.2, top_p=0.5)).sampling
    assert (sampling.temperature, sampling.top_p) == (0.2, 0.9)


def test_an_evaluation_says_what_it_does_not_ask_an_engine_for() -> None:
    asked = Sampling(temperature=0.2, top_p=0.5, top_k=5, stop=("END",), seed=1)
    exact, text = player(SessionOptions(purpose="eval")), SessionOptions(purpose="eval")
    exact.ask(*START, reply=said("x"), sampling=asked)
    assert [finding.detail.partition(":")[0] for finding in exact.session.said] == ["stop"]
    planned = new_session("s", text, level="text", window=1000, renderer=None).plan(Call(START, sampling=asked))
    assert not isinstance(planned, Stop)
    assert [finding.detail.partition(":")[0] for finding in planned.findings] == ["top_k, stop"]


@pytest.mark.parametrize("variables", [{}, {"enable_thinking": True}])
def test_thinking_a_harness_asks_for_and_the_session_does_not_give_is_a_finding(variables: dict[str, bool]) -> None:
    play = player(SessionOptions(template_kwargs=variables))
    play.ask(*START, reply=said("x"), thinking=False)
    assert codes(play) == ["thinking_ignored"]


def test_thinking_the_session_has_as_asked_is_no_finding() -> None:
    play = player(SessionOptions(template_kwargs={"enable_thinking": False}))
    play.ask(*START, reply=said("x"), thinking=False)
    assert codes(play) == []


def test_what_a_training_session_cannot_honour_is_a_finding() -> None:
    play = player()
    choice = ToolChoice("named", "bash")
    play.ask(*START, reply=said("x"), tool_choice=choice, response_schema={"type": "object"})
    assert {"tool_choice_ignored", "response_schema_ignored"} <= set(codes(play))


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        (Budget(max_calls=1), "budget_calls"),
        (Budget(max_output_tokens=2), "budget_output_tokens"),
        (Budget(max_seconds=1.5), "budget_seconds"),
    ],
)
def test_a_spent_budget_stops_the_harness_without_a_turn(budget: Budget, code: str) -> None:
    play = player(SessionOptions(budget=budget))
    play.ask(*START, reply=said("x"), cut=2)
    stop = play.session.plan(Call(START, play.tools), seconds=1.5)
    assert isinstance(stop, Stop)
    assert stop.finding.code == code
    assert stop.text
    assert len(play.session.tree) == 1


def test_calls_in_flight_count_towards_the_budget() -> None:
    play = player(SessionOptions(budget=Budget(max_calls=2)))
    assert isinstance(play.session.plan(Call(START, play.tools), in_flight=2), Stop)


def test_a_reply_longer_than_the_budget_still_is_cut_as_a_lower_limit_would_have_cut_it() -> None:
    spans = (WeightSpan("1", 0, 3), WeightSpan("2", 3, 6))
    sampled = Generation([11, 12, 13, 14, 15, 16], [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0], "stop", spans)
    kept = within_budget(Budget(max_output_tokens=10), Spent(2, 8), sampled)
    assert isinstance(kept, Generation)
    assert (kept.ids, kept.logprobs, kept.finish) == ([11, 12], [-1.0, -2.0], "length")
    assert kept.weight_versions == (WeightSpan("1", 0, 2),)
    assert [finding.code for finding in kept.findings] == ["max_tokens_clamped"]
    assert within_budget(Budget(max_output_tokens=14), Spent(2, 8), sampled) is sampled
    assert isinstance(within_budget(Budget(max_output_tokens=8), Spent(2, 8), sampled), Stop)


def test_tokens_an_engine_only_counts_are_spent_too() -> None:
    session = new_session("s", SessionOptions(), level="text", window=1000, renderer=None)
    planned = session.plan(Call(START))
    assert not isinstance(planned, Stop)
    generation = Generation((), (), "stop", text="Hi.", extras={"completion_tokens": 7})
    session.add(session.record(planned, generation, turn_id="t", mint=str, created=0).turn)
    assert session.sampled_tokens == 7


def test_a_previous_response_id_stands_for_its_whole_history() -> None:
    play = player()
    first = play.finish(play.plan(*START), said("", bash("ls")))
    shown = result(first.reply.message.tool_calls[0], "a")
    play.ask(shown, reply=said("Done."), previous_id=first.reply.id)
    second = play.session.tree.turns()[1]
    assert second.parent == first.turn.id
    assert second.delta == (shown,)


def test_of_replies_that_say_the_same_the_named_one_is_continued() -> None:
    play = player()
    plans = [play.plan(*START) for _ in range(3)]
    first, second, third = (play.finish(plan, said("Hm.")) for plan in plans)
    for answered in (second, first, third, second):
        planned = play.plan(user("Go."), previous_id=answered.reply.id)
        assert planned.parent == answered.turn
        assert planned.call.previous_id == answered.reply.id
        play.finish(planned, said("Done."))
    assert play.plan(*START, said("Hm."), user("Go.")).parent == third.turn


def test_instructions_beside_a_previous_response_id_replace_the_old_ones() -> None:
    play = player()
    first = play.finish(play.plan(*START), said("Hm."))
    play.ask(START[0], user("Go."), reply=said("Done."), previous_id=first.reply.id)
    play.ask(system("Other."), user("Go."), reply=said("Done."), previous_id=first.reply.id)
    _, same, other = play.session.tree.turns()
    assert same.parent == first.turn.id
    assert other.parent is None
    assert other.delta[0] == system("Other.")
    assert START[0] not in other.delta


def test_an_unknown_previous_response_id_is_not_found() -> None:
    with pytest.raises(GatewayError) as caught:
        player().plan(*START, previous_id="resp_x")
    assert caught.value.kind == "not_found"


def test_no_messages_at_all_is_a_bad_request() -> None:
    with pytest.raises(GatewayError) as caught:
        player().plan()
    assert caught.value.kind == "bad_request"


def test_history_as_sent_renders_every_turn_from_text() -> None:
    play = player(SessionOptions(history="as_sent"))
    first = play.ask(*START, reply=said("One.", reasoning="hidden"))
    play.ask(*START, replace(first, reasoning=""), user("Two?"), reply=said("Two."))
    assert [turn.parent for turn in play.session.tree.turns()] == [None, None]
    assert "hidden" not in play.renderer.decode(play.session.tree.turns()[1].delta_ids)


def test_a_renderer_without_an_exact_delta_starts_a_new_root_and_says_why() -> None:
    play = player(refuses_deltas=True)
    first = play.ask(*START, reply=said("One."))
    play.ask(*START, first, user("Two?"), reply=said("Two."))
    assert play.session.tree.turns()[1].parent is None
    assert codes(play) == ["root_no_exact_delta"]


def test_template_variables_bind_the_renderer_of_the_session() -> None:
    options = SessionOptions(template_kwargs={"enable_thinking": False})
    renderer = player(options).session.renderer
    assert renderer is not None
    assert renderer.template_kwargs == {"enable_thinking": False}  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["logprob_not_finite", "logprobs_raw"])
def test_a_turn_whose_log_probabilities_are_no_good_is_kept_and_not_trainable(code: str) -> None:
    play = player()
    planned = play.plan(*START)
    generation = Generation([1001, END], [-0.5, float("nan")], "stop", findings=(Finding(code),))
    recorded = play.session.record(planned, generation, turn_id="t", mint=str, created=0)
    assert not recorded.turn.trainable
    assert list(recorded.turn.sampled) == [1001, END]


def test_a_generation_its_engine_calls_untrainable_is_not_trainable() -> None:
    play = player()
    generation = Generation([1001, END], [-0.5, -0.5], "stop", trainable=False)
    assert not play.session.record(play.plan(*START), generation, turn_id="t", mint=str, created=0).turn.trainable


def test_an_engine_below_tokens_gives_turns_that_can_never_be_trained() -> None:
    session = new_session("s", SessionOptions(), level="text", window=1000, renderer=None)
    planned = session.plan(Call(START, ()))
    assert not isinstance(planned, Stop)
    reply = Message("assistant", "Hi.", tool_calls=(ToolCall("x", "bash", "{}"),))
    generation = Generation((), (), "stop", message=reply, extras={"prompt_tokens": 7, "completion_tokens": 3})
    recorded = session.record(planned, generation, turn_id="t", mint=lambda: "c1", created=0)
    assert (recorded.turn.trainable, list(recorded.turn.sampled)) == (False, [])
    assert recorded.reply.usage.prompt_tokens == 7
    assert recorded.reply.message.tool_calls[0].id == "c1"


def test_a_result_reaches_the_model_under_the_id_it_wrote_and_with_its_function() -> None:
    play = player()
    planned = play.plan(*START)
    sampled = Message("assistant", "", tool_calls=(ToolCall("", "Read", "{}", native_id="functions.Read:0"),))
    recorded = play.finish(planned, sampled)
    call = replace(recorded.reply.message.tool_calls[0], native_id="functions.Read:0")
    play.session.tree._minted[call.id] = (recorded.turn.id, call)
    named = natively_named([result(call, "text")], (), play.session.tree)
    assert named[0].tool_call_id == "functions.Read:0"
    assert named[0].name == "Read"


def test_a_count_is_the_length_of_the_prompt_the_same_call_would_have() -> None:
    play = player()
    first = play.ask(*START, reply=said("", bash("ls"), reasoning="hidden"))
    history = (*START, first, result(first.tool_calls[0], "a"))
    assert play.session.count(Call(history, play.tools)) == len(play.plan(*history).prompt_ids)
    assert len(play.session.tree) == 1


def test_a_turn_other_processes_wrote_is_taken_once() -> None:
    play = player()
    play.ask(*START, reply=said("One."))
    turn = play.session.tree.turns()[0]
    tokens = play.session.sampled_tokens
    play.session.add(turn)
    assert play.session.sampled_tokens == tokens


def test_a_finding_about_the_history_is_said_once_though_every_call_brings_the_history_again() -> None:
    play = player()
    dropped = (Finding("media_omitted", "an image"),)
    first = play.ask(*START, reply=said("x"), findings=dropped)
    play.ask(*START, first, user("More."), reply=said("y"), findings=(*dropped, Finding("media_omitted", "another")))
    assert [codes(play, 0), codes(play, 1)] == [["media_omitted"]] * 2
    assert play.session.findings["media_omitted"] == 2


def test_a_tool_loaded_in_mid_conversation_types_arguments_and_changes_no_prompt() -> None:
    play = player()
    late = Tool("late", "", {"type": "object"})
    first = play.ask(*START, reply=said("x"))
    planned = play.plan(*START, first, user("More."), deferred_tools=(late,))
    assert planned.parent is not None
    assert planned.context == planned.parent.context


def test_what_a_template_could_not_take_is_a_finding_of_the_root() -> None:
    play = player()
    play.ask(system("One."), *START, reply=said("x"))
    assert codes(play) == ["systems_joined"]
