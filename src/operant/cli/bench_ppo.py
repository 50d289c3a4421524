"""``operant bench ppo``: how fast PPO trains, beside whom."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from operant.cli.options import JsonFile
from operant.cli.screen import UserError, mistakes, output, short

EXAMPLE = "Example:  operant bench ppo --device cpu --peers sb3,rejax --json ppo.json"


def ppo(
    env_id: Annotated[str, Option("--env", help="Environment.")] = "CartPole-v1",
    num_envs: Annotated[int, Option(min=1, help="Batch size; SB3 takes 64 at most.")] = 2048,
    num_steps: Annotated[int, Option(min=1, help="Steps of each environment in a rollout.")] = 128,
    epochs: Annotated[int, Option(min=1, help="Passes over a rollout.")] = 4,
    minibatches: Annotated[int, Option(min=1, help="Updates in a pass.")] = 4,
    hidden: Annotated[str, Option(help="Hidden layers, comma-separated.")] = "64,64",
    activation: Annotated[str, Option(help="After each hidden layer.")] = "tanh",
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    engine: Annotated[str, Option(help="How our loop is executed.")] = "auto",
    threads: Annotated[int, Option(min=0, help="Our threads on a CPU; 0: what is fastest.")] = 0,
    precision: Annotated[
        str, Option(help="Of the networks on a GPU: auto, fp32, tf32, bf16 or fp16.")
    ] = "auto",
    compile_level: Annotated[
        str, Option("--compile", help="torch.compile in graph: off, on (20 s) or max (2 minutes).")
    ] = "on",
    peers: Annotated[
        str,
        Option(help="Comma-separated: sb3, rejax, our engines; on a GPU by default graph,eager."),
    ] = "",
    repeats: Annotated[int, Option(min=1, help="Rounds; the median counts.")] = 5,
    seconds: Annotated[
        float, Option(min=0.001, help="Least seconds that each contender trains in a round.")
    ] = 2.0,
    json_file: JsonFile = "",
) -> None:
    """PPO training steps per second: ours and others', taking turns, median of several rounds."""
    from operant.bench.peers import Setting
    from operant.bench.ppo import contenders, measure, records, usual_peers
    from operant.cli.bench import show_progress, write_results
    from operant.cli.target import env_name, load_compiled

    names = [peer for peer in peers.split(",") if peer]
    with mistakes():
        load_compiled(env_id, "bench ppo")
        names = names or usual_peers(device, engine)
        everyone = contenders(
            Setting(
                env_name(env_id),
                num_envs,
                num_steps,
                epochs,
                minibatches,
                _sizes(hidden),
                activation,
                device,
                engine,
                threads,
                precision,
                compile_level,
            ),
            names,
        )
    show_progress(measure(everyone, repeats, seconds), len(everyone) * (repeats + 1))
    found = records(everyone)
    if json_file != "-":
        _print_table(found)
    write_results(json_file, found)


def _sizes(hidden: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in hidden.split(",") if size)
    except ValueError:
        raise UserError(f"--hidden must be sizes such as 64,64, got {hidden!r}") from None


def _print_table(found: list[dict[str, Any]]) -> None:
    from operant.cli.bench import print_figures

    peers = [row["system"] for row in found[1:]]
    limited = any(row["limit_share"] is not None for row in found)
    heads = ["system", "env", "envs", "threads", "steps/s", "+-", "GFLOP/s", "coll/adv/upd"]
    heads += ["of limit"] if limited else []
    rows = []
    for row in found:
        spread = (row["sps_max"] - row["sps_min"]) / row["sps"] / 2
        shares = [row[f"{part}_share"] for part in ("collect", "advantages", "update")]
        names = [row["system"], row["engine"] if row["engine"] != row["system"] else ""]
        names.append("" if row["precision"] in (None, "fp32") else row["precision"])
        cells = [" ".join(name for name in names if name), row["env"], str(row["num_envs"])]
        cells += [str(row["threads"]), short(row["sps"], 2), f"{spread:.0%}"]
        cells.append("" if row["gflops"] is None else f"{row['gflops']:.0f}")
        cells.append("" if None in shares else "/".join(f"{100 * s:.0f}" for s in shares) + " %")
        if limited:
            cells.append("" if row["limit_share"] is None else f"{row['limit_share']:.1%}")
        ratios = [row["ratio_to"].get(peer) for peer in peers]
        rows.append(cells + ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios])
    print_figures([*heads, *(f"x {peer}" for peer in peers)], rows)
    notes = ["x: ours against that peer"] if peers else []
    if limited:
        notes.append("of limit: of what the GPU does in one large product of that precision")
    if notes:
        output.print("; ".join(["steps/s: collected and trained on", *notes]), style="dim")
