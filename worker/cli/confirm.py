"""`spool-worker confirm`: runs what a machine has to confirm and writes the report. Knows
options and printing."""

from pathlib import Path
from typing import Annotated

import typer


def confirm(
    model: Annotated[str, typer.Option(help="A model's name in the settings, or a path.")] = "",
    minutes: Annotated[float, typer.Option(min=0.05, help="How long memory is watched.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="How often each batch is timed.")] = 3,
    sleep: Annotated[bool, typer.Option(help="Ask a person to let this Mac sleep and wake.")] = True,
    only: Annotated[list[str] | None, typer.Option(help="A step by its name; repeat.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("."),
) -> None:
    """Confirm what could not be tried where Spool was built: kernels, parity, words, speed, memory,
    crashes and sleep.

    Writes confirm-….json and .md; exit code 1 when anything differs.
    """
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from worker.diagnostics.confirm import engine
    from worker.diagnostics.confirm import steps as confirm_steps
    from worker.diagnostics.confirm.report import Outcome, Result, Step, new_report, write_report
    from worker.diagnostics.confirm.report import confirm as run_steps

    settings = load_settings()
    configure_logs(settings.log_json)
    name = model or settings.default_model
    place = settings.models.get(name, name)
    demo = str(confirm_steps.ROOT / "models" / "demo")

    def asleep() -> Outcome:
        if not sleep:
            return Outcome("not possible here", "left out by --no-sleep")
        return engine.sleep(settings, place, lambda text: typer.echo(text, err=True))

    steps = [
        Step("machine", "an Apple GPU; nothing fails", lambda: confirm_steps.machine(settings)),
        Step("kernels", "every kernel compiles and equals its reference", confirm_steps.kernels),
        Step("parity", "MLX gives what NeMo gave on the golden files", confirm_steps.parity),
        Step("samples", "the stored words, to half a word in a hundred", lambda: confirm_steps.samples(demo)),
        Step(
            "speed", "between a twentieth and all of the roofline", lambda: confirm_steps.speed(place, rounds)
        ),
        Step("memory", "flat", lambda: engine.memory(settings, place, minutes)),
        Step(
            "crashes",
            "one restart each, every utterance answered",
            lambda: engine.crashes(settings, place),
        ),
        Step("sleep", "the same words after it", asleep),
    ]
    unknown = sorted(set(only or ()) - {step.name for step in steps})
    if unknown:
        raise typer.BadParameter(f"no step {', '.join(unknown)}: {', '.join(step.name for step in steps)}")
    report = new_report()
    for state in run_steps(report, [step for step in steps if not only or step.name in only]):
        if isinstance(state, Result):
            typer.echo(f"{state.verdict:<17} {state.name:<8} {state.found} ({state.seconds:.0f} s)")
        else:
            typer.echo(f"{'…':<17} {state.name:<8} {state.expected}", err=True)
    written = write_report(report, folder)
    typer.echo(f"\nThe report, to send back: {written[0]} and {written[1].name}")
    if report.differs:
        raise typer.Exit(1)
