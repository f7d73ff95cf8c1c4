from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import count, listed
from orchestrator.ui.cli.common import RESULTS, Json, Results, SweepName, chosen_runs, print_json

if TYPE_CHECKING:
    from orchestrator.control.verify.verify import Verifier


def _share(param: typer.CallbackParam, value: float) -> float:
    if 0 < value <= 1:
        return value
    raise OrchestrateError(
        f"{param.opts[0]}: found {value}, expected a share above 0 and at most 1",
        hint=f"as in: {param.opts[0]} 0.1",
    )


def verify(
    sweep: SweepName,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Ids or key=value; all of these. By default a sample of all."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, metavar="N", help="Runs to train again.", show_default=False),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Draw the sample by it; choose a new one each time.")
    ] = 0,
    falsified: Annotated[
        float,
        typer.Option(
            "--falsified", metavar="SHARE", callback=_share, help="Of all, that a sample should find."
        ),
    ] = 0.1,
    first: Annotated[
        float,
        typer.Option("--first", metavar="SHARE", callback=_share, help="Train only the first part of each."),
    ] = 1.0,
    slots: Annotated[int | None, typer.Option("--slots", min=1, metavar="N", help="Runs at once.")] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Train a random sample of finished runs again, and compare every metric, bit for bit.

    Of a run that went on from a shorter one only the rest is trained. The
    verdicts are kept with the sweep; its results stay as they are. The exit
    code is 1 if a metric differs or a run of the sample has no verdict.

    [bold]Examples[/bold]

      orchestrate verify speed --seed 4711
      orchestrate verify speed --first 0.1
      orchestrate verify speed 3fa9c1d2
    """
    from orchestrator.control.verify.verify import VerifyOptions, find_sample
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.cli.watch.sweep_table import SweepScreen

    sweep_dir = SweepDir.existing(results, sweep)
    options = VerifyOptions(sample, seed, falsified, first, slots)
    verifier = find_sample(sweep_dir, chosen_runs(sweep_dir, runs or []), options, named=bool(runs))
    screen = SweepScreen(sweep, quiet=as_json)
    if not as_json:
        typer.echo(f"{sweep}: training {len(verifier.sample)} of {count(verifier.total, 'run')} again")
    try:
        with screen:
            for seen in verifier.train(partial(typer.echo, err=True) if as_json else screen.note):
                screen.show(seen)
    except KeyboardInterrupt:
        verifier.stop()
        typer.echo("stopped; the same command goes on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        _print_json(sweep, verifier, falsified)
    else:
        _print(verifier, falsified, first)
    raise typer.Exit(int(verifier.failed))


def _print(verifier: Verifier, falsified: float, first: float) -> None:
    verdicts, differing = verifier.verdicts, [one for one in verifier.verdicts if one.difference]
    for one in differing:
        note = f" ({one.note})" if one.note else ""
        typer.echo(f"DIFFERS {one.run_id}: {one.difference}{note}", err=True)
    for why, number in Counter(verifier.why_not.values()).items():
        typer.echo(f"{count(number, 'run')} not verified: {why}", err=True)
    if left_out := sorted({name for one in verdicts for name in one.not_compared}):
        typer.echo(f"not compared, as two trainings here differ in it: {listed(left_out, 5)}", err=True)
    part = f"the first {_percent(first)} of each of " if first < 1 else ""
    trained = f"{part}{len(verdicts)} of {count(verifier.total, 'segment')} trained again"
    if differing:
        kept = f"; both trainings are kept: {verifier.scratch}"
        typer.echo(f"{trained}, not as on record: {len(differing)}{kept}")
    elif verdicts:
        found = f"{_percent(falsified)} falsified ones would have been found with {_percent(verifier.chance)}"
        typer.echo(f"{trained}, all equal: {found}{' if that part is' if first < 1 else ''}")
        equal = sum(one.checkpoint for one in verdicts)
        also = f", and the tensors of {count(equal, 'last checkpoint')}" if equal else ""
        typer.echo(f"compared: each row of metrics{also}; not times")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _print_json(sweep: str, verifier: Verifier, falsified: float) -> None:
    from orchestrator.core.records import plain

    print_json(
        {
            "sweep": sweep,
            "segments": verifier.total,
            "equal": not verifier.failed,
            "falsified": falsified,
            "chance": verifier.chance,
            "verdicts": plain(verifier.verdicts),
            "not_verified": verifier.why_not,
        }
    )
