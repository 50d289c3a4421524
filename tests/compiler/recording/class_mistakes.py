"""Mistakes in what the functions of an environment return and take, and in its class."""

from __future__ import annotations

from .mistakes import ACTIONS, DRAW, FIELD, LINE, OBSERVE, RETURN, SPACE, THREE, Change, returned

NO_ATTRIBUTE = "is no attribute of an environment, and nothing reads it"
CLASS_MISTAKES: dict[str, tuple[Change | list[Change], str]] = {
    # What the functions return
    "two values": (returned("Cart.State(x, v, 0), 0.0"), f"{THREE}2: (State, 0.0)"),
    "Gymnasium's five": (
        returned("Cart.State(x, v, 0), x, x > 5.0, False, {}"),
        f"{THREE}5: (State, float, bool, False, dict): leave out the info of Gymnasium's "
        "functions; the library truncates episodes itself, at max_episode_steps",
    ),
    "the state alone": (returned("Cart.State(x, v, 0)"), f"{THREE}a State"),
    "a list": (
        returned("[Cart.State(x, v, 0), 0.0, False]"),
        f"{THREE}[State, 0.0, False], a list; write a tuple, without the brackets",
    ),
    "an observation for the state": (
        returned("(x, v), 0.0, False"),
        "step() must return Cart.State(x, v, n), reward, terminated; got (float, float) for the "
        "state",
    ),
    "swapped": (
        returned("Cart.State(x, v, 0), x > 5.0, -x"),
        "reward and terminated are swapped: return State, reward, terminated",
    ),
    "two flags": (
        returned("Cart.State(x, v, 0), 0.0, (x > 5.0, x < 0.0)"),
        "step() must give a bool for terminated, got (bool, bool); give one bool, not 2 values",
    ),
    "reset with info": (
        (DRAW, f"{DRAW}, {{}}  #!"),
        "reset() must return Cart.State(x, v, n); got (State, dict): leave out the info of "
        "Gymnasium's functions",
    ),
    "another number of observations": (
        (OBSERVE, "return state.x, state.v, state.n  #!"),
        "observe() must return 2 numbers for Box(-10.0, 10.0, (2,), float32), got 3; "
        "write Box(low, high, (3,)), or return 2",
    ),
    "a dict of observations": (
        (OBSERVE, "return {'x': state.x}  #!"),
        "observe() must return 2 numbers for Box(-10.0, 10.0, (2,), float32), got a dict; "
        "return the numbers side by side: (a, b)",
    ),
    "an array of observations": (
        (OBSERVE, "return np.array([state.x, state.v])  #!"),
        "np.array() cannot be compiled; write a tuple, (x, y)",
    ),
    "no return": (
        (
            f"    def observe(state):\n        {OBSERVE}",
            "    def observe(state):  #!\n        pass",
        ),
        "observe() must return 2 numbers for Box(-10.0, 10.0, (2,), float32), got nothing: "
        "a `return` is missing",
    ),
    "yield": (
        (RETURN, f"yield x\n        {RETURN}  #!"),
        f"{THREE}a generator or coroutine: write a plain function, without yield and async",
    ),
    "the bare name of State": (
        returned("State(x, v, 0), 0.0, False"),
        "the name 'State' is not defined; write Cart.State",
    ),
    # Arguments
    "an argument that is not named": (
        [("step(state, action, params)", "step(state, action)"), (LINE, "x = params.gravity  #!")],
        "the name 'params' is not defined; write params among the arguments of step()",
    ),
    "a method": (
        ("def step(state, action, params):", "def step(self, action):  #!"),
        "step() takes any of state, action, random, params; got the argument 'self'; it is no "
        "method, so write def step(state, action, random, params), or fewer",
    ),
    "another argument": (
        ("def step(state, action, params):", "def step(state, act):  #!"),
        "step() takes any of state, action, random, params; got the argument 'act'; "
        "did you mean 'action'?",
    ),
    "the arguments of Gymnasium": (
        ("def reset(random):", "def reset(seed=None, options=None):  #!"),
        "reset() takes any of random, params; got the argument 'seed'; write def reset(random, "
        "params), or fewer",
    ),
    "super()": (
        (DRAW, f"super().reset()  #!\n        {DRAW}"),
        "super() is for methods, and the functions are none; leave the line out",
    ),
    "a classmethod": (
        [("    def observe(", "    @classmethod\n    def observe("), (OBSERVE, f"{OBSERVE}  #!")],
        "Cart has no attribute 'x'; the first argument of a classmethod is the class: "
        "write a plain function, without the decorator",
    ),
    # The class
    "a render that is a method": (
        (
            "    def observe(",
            "    def render(self):  #!\n        return None\n\n    def observe(",
        ),
        "render() takes any of state, canvas, params; got the argument 'self'; it is no method; "
        "write def render(state, canvas), which draws on the canvas",
    ),
    "spaces in __init__": (
        [
            (f"    {SPACE}\n    {ACTIONS}\n", ""),
            (
                "    def observe(",
                f"    def __init__(self):  #!\n        self.{SPACE}\n\n    def observe(",
            ),
        ],
        "Cart.__init__ would never run: an environment has no instances; write observation_space "
        "= ... and action_space = ... in the class itself, and settings into class "
        "Params(NamedTuple)",
    ),
    "a list field": (
        (FIELD, f"{FIELD}        walls: list  #!\n"),
        "Cart.State.walls: use float, int or bool, got list; write one field for each number (x0: "
        "float, x1: float), or a state of arrays: class State(operant.lang.Arrays) with walls = "
        "operant.lang.float32[8]",
    ),
    "a field of text": (
        (FIELD, f"{FIELD}        name: str  #!\n"),
        "Cart.State.name: use float, int or bool, got str; number the cases 0, 1, 2 and use an int",
    ),
    "a mutable default": (
        (FIELD, "        n: int = []  #!\n"),
        "Cart.State.n: the default must be an int, got []; leave it out: reset() gives every field "
        "its first value",
    ),
    "a misspelt type": (
        (FIELD, "        n: 'itn'  #!\n"),
        "Cart.State.n: name 'itn' is not defined; use float, int or bool",
    ),
    "a field without a type": (
        (FIELD, "        n = 0  #!\n"),
        "Cart.State.n has no type, so it is no field; write n: int",
    ),
    "a parameter without a type": (
        ("gravity: float = 9.8", "gravity = 9.8  #!"),
        "Cart.Params.gravity has no type, so it is no field; write gravity: float = 9.8",
    ),
    "a plain class": (
        ("    class State(NamedTuple):", "    class State:  #!"),
        "Cart.State must be a NamedTuple, got the class State; write class State(NamedTuple): with "
        "fields such as x: float",
    ),
    "a dataclass": (
        ("    class State(NamedTuple):", "    @dataclass\n    class State:  #!"),
        "Cart.State must be a NamedTuple, got the class State; write class State(NamedTuple): with "
        "fields such as x: float",
    ),
    "a Dict space": (
        (SPACE, 'observation_space = Dict({"x": Box(-1.0, 1.0, (2,))})  #!'),
        "Cart.observation_space must be a float32 Box, a Discrete or a MultiDiscrete, got "
        "Dict('x': Box(-1.0, 1.0, (2,), float32)); put the numbers side by side, in one "
        "Box(low, high, (n,)) or one MultiDiscrete([...])",
    ),
    "a float64 Box": (
        (SPACE, "observation_space = Box(-1.0, 1.0, (2,), np.float64)  #!"),
        "Cart.observation_space must be a float32 Box, a Discrete or a MultiDiscrete, got "
        "Box(-1.0, 1.0, (2,), float64); write Box(low, high, shape, np.float32)",
    ),
    "a Tuple of actions": (
        (ACTIONS, "action_space = Tuple([Discrete(2)])  #!"),
        "Cart.action_space must be a Discrete, MultiDiscrete, MultiBinary or float32 Box, got "
        "Tuple(Discrete(2)); put the numbers side by side, in one Box(low, high, (n,)) or one "
        "MultiDiscrete([...])",
    ),
    "a number of actions": (
        (ACTIONS, "action_space = 3  #!"),
        "Cart.action_space must be a gymnasium space, or a function of the parameters that returns "
        "one, got 3; write action_space = Discrete(3)",
    ),
    "the class of a space": (
        (ACTIONS, "action_space = Discrete  #!"),
        "Cart.action_space must be a gymnasium space, or a function of the parameters that returns "
        "one, got the class Discrete; write action_space = Discrete(2)",
    ),
    "no action_space": (
        (f"    {ACTIONS}\n", ""),
        "Cart lacks action_space; write action_space = Discrete(2)",
    ),
    "no observe": (
        (f"    def observe(state):\n        {OBSERVE}\n", ""),
        "Cart lacks observe; write def observe(state): return the numbers of the observation",
    ),
    "no reset": (
        ("def reset(", "def restart("),
        "Cart lacks reset; write def reset(random): return Cart.State(...)",
    ),
    "a parameter without a default": (
        ("gravity: float = 9.8", "gravity: float  #!"),
        "Cart.Params needs a default for each field; write gravity: float = ...",
    ),
    "a time limit that is no number": (
        ("max_episode_steps = 50", "max_episode_steps = '50'  #!"),
        "Cart.max_episode_steps must be a whole number of at least 1, or None, got '50'",
    ),
    "a time limit that is a truth value": (
        ("max_episode_steps = 50", "max_episode_steps = True  #!"),
        "Cart.max_episode_steps must be a whole number of at least 1, or None, got True",
    ),
    "a time limit without =": (
        ("max_episode_steps = 50", "max_episode_steps: 50  #!"),
        "Cart.max_episode_steps gets no value from `:`; write max_episode_steps = 50",
    ),
    "a threshold of text": (
        ("max_episode_steps = 50", 'reward_threshold = "475"  #!'),
        "Cart.reward_threshold must be a finite number, such as 475.0, or None, got '475'",
    ),
    "a threshold that is not a number": (
        ("max_episode_steps = 50", "reward_threshold = float('nan')  #!"),
        "Cart.reward_threshold must be a finite number, such as 475.0, or None, got nan",
    ),
    "a threshold that is a list": (
        ("max_episode_steps = 50", "reward_threshold = [475.0]  #!"),
        "Cart.reward_threshold must be a finite number, such as 475.0, or None, got [475.0]",
    ),
    "a time limit that is no function": (
        ("max_episode_steps = 50", "time_limit = 50  #!"),
        "Cart.time_limit must be a function of the parameters (a number of steps is "
        "max_episode_steps), got 50",
    ),
    "options that have no names": (
        ("max_episode_steps = 50", 'training = ["ppo.gamma=0.9"]  #!'),
        'Cart.training must be options by dotted name, such as {"ppo.gamma": 0.98}, got '
        "['ppo.gamma=0.9']",
    ),
    "a space that is a function of nothing": (
        (SPACE, "def observation_space():  #!\n        return Box(-10.0, 10.0, (2,))"),
        "Cart.observation_space is a function of the parameters, got observation_space(); write "
        "def observation_space(params)",
    ),
    "a time limit of two": (
        (
            "max_episode_steps = 50",
            "max_episode_steps = 50\n\n    def time_limit(state, params):  #!\n        return 50",
        ),
        "Cart.time_limit is a function of the parameters, got time_limit(state, params); write "
        "def time_limit(params)",
    ),
    "one side of a picture": (
        ("max_episode_steps = 50", "render_size = 600  #!"),
        "Cart.render_size must be width and height in pixels, such as (600, 400), got 600",
    ),
    "frames a second that are no number": (
        ("max_episode_steps = 50", "render_fps = '30'  #!"),
        "Cart.render_fps must be a whole number of at least 1, such as 30, got '30'",
    ),
    # Names
    "a misspelt time limit": (
        ("max_episode_steps = 50", "max_episode_step = 50  #!"),
        f"Cart.max_episode_step {NO_ATTRIBUTE}; did you mean max_episode_steps?",
    ),
    "the time limit of another library": (
        ("max_episode_steps = 50", "max_steps = 50  #!"),
        f"Cart.max_steps {NO_ATTRIBUTE}; did you mean max_episode_steps?",
    ),
    "a misspelt threshold": (
        ("max_episode_steps = 50", "reward_treshold = 475.0  #!"),
        f"Cart.reward_treshold {NO_ATTRIBUTE}; did you mean reward_threshold?",
    ),
    "a misspelt space": (
        (SPACE, SPACE.replace("space", "spaces") + "  #!"),
        f"Cart.observation_spaces {NO_ATTRIBUTE}; did you mean observation_space?",
    ),
    "small letters": (
        ("    class Params(NamedTuple):", "    class params(NamedTuple):  #!"),
        f"Cart.params {NO_ATTRIBUTE}; did you mean Params?",
    ),
    "the mask of another library": (
        (
            "    def observe(",
            "    def action_masks(state):  #!\n        return 1\n\n    def observe(",
        ),
        f"Cart.action_masks {NO_ATTRIBUTE}; did you mean action_mask?",
    ),
    "Gymnasium's metadata": (
        ("max_episode_steps = 50", 'metadata = {"render_fps": 50}  #!'),
        f"Cart.metadata {NO_ATTRIBUTE}; render(state, canvas) draws, and render_fps = 30 is how "
        "fast it is shown",
    ),
    "Gymnasium's render_mode": (
        ("max_episode_steps = 50", 'render_mode = "human"  #!'),
        f"Cart.render_mode {NO_ATTRIBUTE}; render(state, canvas) draws, for `operant record` and "
        "`operant play`",
    ),
    "random_numbers that is no number": (
        ("max_episode_steps = 50", "random_numbers = 'ten'  #!"),
        "Cart.random_numbers must be 0 to 64, got 'ten'",
    ),
}
