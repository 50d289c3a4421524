"""Methods of callbacks, add-ons and bonuses that nothing would call."""

from __future__ import annotations

import pytest

from operant.models.bonus import Bonus
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback, WindowCallback, checked

THREE = "Callback has on_rollout, on_episodes, on_update"


def method(self: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("base", "name", "said"),
    [
        (Callback, "_on_step", f"{THREE}; write on_rollout"),
        (Callback, "on_step", f"{THREE}; write on_rollout"),
        (Callback, "_on_rollout_end", f"{THREE}; write on_rollout"),
        (Callback, "on_training_start", f"{THREE}; do that before learn()"),
        (Callback, "_on_training_end", f"{THREE}; do that after learn()"),
        (Callback, "on_episode", f"{THREE}; did you mean on_episodes?"),
        (Callback, "on_checkpoint", THREE),
        (WindowCallback, "on_updates", f"{THREE}; did you mean on_update?"),
        (AddOn, "after_colect", "; did you mean after_collect?"),
        (AddOn, "on_rollout", "set_state"),
        (Bonus, "losses", "; did you mean loss?"),
    ],
)
def test_what_nothing_calls_is_refused(base: type, name: str, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        type("Mine", (base,), {name: method})
    line = method.__code__.co_firstlineno
    assert str(caught.value).startswith(f"{__file__}:{line}: nothing calls Mine.{name}(), ")
    assert str(caught.value).endswith(said)


def test_methods_of_ones_own_are_allowed() -> None:
    class Mine(Callback):
        def on_update(self, trainer, metrics):
            self.on_better(metrics)
            [self.on_each(name) for name in metrics]

        def on_better(self, metrics):
            pass

        def on_each(self, name):
            pass

        def note(self):
            pass

    class Child(Mine):
        def on_better(self, metrics):
            pass

    assert checked(Child())[0].note() is None


def test_a_hook_takes_what_it_is_given() -> None:
    with pytest.raises(TypeError) as caught:

        class Mine(Callback):
            def on_update(self, metrics):
                pass

    line = test_a_hook_takes_what_it_is_given.__code__.co_firstlineno + 4
    assert str(caught.value) == (
        f"{__file__}:{line}: test_a_hook_takes_what_it_is_given.<locals>.Mine.on_update() takes "
        "(self, metrics) and is called with more or less; write def on_update(self, trainer, "
        "metrics)"
    )

    class Any(Callback):
        def on_update(self, ppo, *rest, loud=False):
            pass


def test_only_callbacks_are_taken() -> None:
    watch = Callback()
    assert checked([watch]) == checked(watch) == [watch]
    assert checked(()) == []
    with pytest.raises(TypeError, match=r"callbacks are objects of .*; write Callback\(\)"):
        checked([Callback])
    with pytest.raises(TypeError, match=r"got <function .*; write class Mine\(Callback\) with on_"):
        checked(lambda locals, globals: True)
    with pytest.raises(TypeError, match="got None"):
        checked(None)
