"""The state of a run in a store for a monitoring system: gauges in the text format of Prometheus and OpenMetrics."""

from collections.abc import Sequence

from distill.units.run_state import RunState


def metrics_text(state: RunState, address: str) -> str:
    """Numbers of units, traces and agents, labelled with the address of the run; traces are about those committed."""
    agents = [bool(agent["works"]) for agent in state.agents]
    gauges: Sequence[tuple[str, str, Sequence[tuple[str, float]]]] = (
        (
            "distill_units",
            "Units of generate by state.",
            (("committed", state.done), ("claimed", state.claimed), ("waiting", state.waiting)),
        ),
        ("distill_units_measured", "Units whose signals are committed.", (("", state.measured),)),
        (
            "distill_traces",
            "Traces of generate.",
            (("committed", state.traces), ("open", state.total_traces - state.traces)),
        ),
        ("distill_traces_per_second", "Traces a second of all agents that work.", (("", state.traces_per_s),)),
        ("distill_agents", "Agents by state.", (("works", sum(agents)), ("lost", len(agents) - sum(agents)))),
        ("distill_agents_failed", "Agents that ended with an error.", (("", len(state.failures)),)),
    )
    lines = []
    for name, told, values in gauges:
        lines += [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
        for label, value in values:
            labels = f'run="{_escaped(address)}"' + (f',state="{label}"' if label else "")
            number = f"{value:g}" if isinstance(value, float) else value
            lines.append(f"{name}{{{labels}}} {number}")
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
