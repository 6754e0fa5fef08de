// The plots. Each draws from plain data into a place; colours come from the page's own palette, so both themes follow it.

/* global Plotly */
import { count, level as levelName, percent, rate, time, unitFor } from "./words.js";

const CONFIG = { displayModeBar: false, responsive: true };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function axis(more) {
  return {
    gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, automargin: true, fixedrange: true,
    tickfont: { size: 12 }, ...more, title: { text: more.title, font: { size: 12.5 }, standoff: 8 },
  };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 52, r: 16, t: 26, b: 44 },
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("quiet") },
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: colour("ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { size: 12.5 } }, ...more,
  };
}

function draw(place, traces, shape) {
  place.style.height = shape.height ? `${shape.height}px` : "";
  return Plotly.react(place, traces, layout(shape), CONFIG);
}

const upright = (x, line) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line });
const timeAxis = (unit, log, more = {}) => axis({ title: `time (${unit})`, type: log ? "log" : "linear", ...more });

/** P(T <= t), linear between the quantiles. */
function chanceBy(t, levels, quantilesS) {
  const after = quantilesS.findIndex((q) => q > t);
  if (after === 0) return 0;
  if (after < 0) return levels[levels.length - 1];
  const [q0, q1, p0, p1] = [quantilesS[after - 1], quantilesS[after], levels[after - 1], levels[after]];
  return p0 + ((p1 - p0) * (t - q0)) / (q1 - q0);
}

/** Edges of the slices between which ends are counted. */
function slices(fromS, toS, log, n = 24) {
  const part = (i) => (log ? fromS * (toS / fromS) ** (i / n) : fromS + ((toS - fromS) * i) / n);
  return Array.from({ length: n + 1 }, (_, i) => part(i));
}

/** Where the phase ends: chance per slice of time, with lines at the advertised quantiles. */
export function density(place, answer, shown, log) {
  const { levels, quantiles_s: q } = answer;
  const at = (p) => q[levels.indexOf(p)];
  const { unit, perSecond } = unitFor(at(0.99));
  const onLog = log && q[0] > 0;
  const widthS = at(0.99) - q[0];
  const edges = widthS > 0 ? slices(q[0], at(0.99), onLog) : [q[0], q[0] + 1e-9];
  const share = edges.slice(1).map((t, i) => chanceBy(t, levels, q) - (i ? chanceBy(edges[i], levels, q) : 0));
  const trace = {
    x: [edges[0], ...edges, edges[edges.length - 1]].map((t) => t * perSecond),
    y: [0, ...share, share[share.length - 1], 0].map((p) => p * 100),
    type: "scatter", mode: "lines", line: { shape: "hv", width: 1.5, color: colour("accent") },
    fill: "tozeroy", fillcolor: `${colour("accent")}2e`,
    hovertemplate: `%{y:.1f} % end near %{x:.3~g} ${unit}<extra></extra>`,
  };
  const position = (p) => at(p) * perSecond;
  const line = (p) => upright(position(p), { color: colour("second"), width: 1.3, dash: p === 0.5 ? "solid" : "dot" });
  const note = (p, i) => ({
    x: onLog ? Math.log10(position(p)) : position(p), xanchor: i > 1 ? "right" : "left",
    y: 1 - 0.085 * i, yref: "paper", yanchor: "top",
    text: levelName(p), showarrow: false, font: { color: colour("second"), size: 12 },
  });
  return draw(place, [trace], {
    xaxis: timeAxis(unit, onLog), yaxis: axis({ title: "chance per slice (%)", rangemode: "tozero" }),
    shapes: shown.map(line), annotations: shown.map(note), showlegend: false,
  });
}

/** The survival curve of an answer, its time counted from `fromS`. */
const survival = (answer, perSecond, fromS) => ({
  x: [fromS, ...answer.quantiles_s.map((q) => fromS + q)].map((t) => t * perSecond),
  y: [100, ...answer.levels.map((p) => 100 * (1 - p))],
});

/** Still running after t: as answered at the start, and given that it has run `elapsedS`. */
export function residual(place, whole, rest, elapsedS, log) {
  const { unit, perSecond } = unitFor(whole.quantiles_s[whole.levels.indexOf(0.99)]);
  const curve = (answer, fromS, name, stroke) => ({
    type: "scatter", mode: "lines", name, line: { color: colour(stroke), width: 2.2 }, ...survival(answer, perSecond, fromS),
    hovertemplate: `%{y:.1f} % still run after %{x:.3~g} ${unit}<extra></extra>`,
  });
  const given = curve(rest ?? whole, elapsedS, `given ${time(elapsedS)}`, "second");
  return draw(place, [curve(whole, 0, "asked at the start", "accent"), given], {
    xaxis: timeAxis(unit, log, { rangemode: "tozero" }), yaxis: axis({ title: "still running (%)", range: [0, 103] }),
    shapes: elapsedS > 0 ? [upright(elapsedS * perSecond, { color: colour("quiet"), width: 1, dash: "dot" })] : [],
  });
}

/** Chances of being done by times, [[seconds from now, chance], ...], with upright lines at named times: [{atS, name}]. */
export function arrival(place, points, lines, title, mode) {
  const reach = Math.max(...lines.map((one) => one.atS), ...points.filter(([, p]) => p <= 0.99).map(([s]) => s));
  const { unit, perSecond } = unitFor(reach);
  const trace = {
    type: "scatter", mode, line: { color: colour("accent"), width: 2.2 }, marker: { size: 8 },
    x: points.map(([s]) => s * perSecond), y: points.map(([, p]) => 100 * p),
    hovertemplate: `%{y:.1f} % within %{x:.3~g} ${unit}<extra></extra>`,
  };
  const notes = lines.map((one) => ({
    x: one.atS * perSecond, xanchor: one.atS > reach / 2 ? "right" : "left", y: 1.01, yref: "paper", yanchor: "bottom", text: one.name,
    showarrow: false, font: { color: colour("second"), size: 12 },
  }));
  return draw(place, [trace], {
    xaxis: axis({ title: `time from now (${unit})`, range: [0, 1.05 * reach * perSecond] }), yaxis: axis({ title, range: [0, 103] }),
    shapes: lines.map((one) => upright(one.atS * perSecond, { color: colour("second"), width: 1.3 })), annotations: notes, showlegend: false,
  });
}

/** Bars of running phases: what has passed, then what is left to p50 and to p90. */
export function running(place, phases, levels) {
  const left = (row, p) => row.remaining_s?.[levels.indexOf(p)] ?? 0;
  const { unit, perSecond } = unitFor(Math.max(...phases.map((row) => row.elapsed_s + left(row, 0.9))));
  const names = phases.map((row) => twoLines(row.phase, shortened(row.attempt_id)));
  const bar = (name, of, fill) => ({
    type: "bar", orientation: "h", name, y: names, x: phases.map((row) => of(row) * perSecond), marker: { color: fill },
    hovertemplate: `${name}: %{x:.3~g} ${unit}<extra></extra>`,
  });
  const traces = [
    bar("has run", (row) => row.elapsed_s, colour("quiet")),
    bar("left, p50", (row) => left(row, 0.5), colour("accent")),
    bar("to p90", (row) => left(row, 0.9) - left(row, 0.5), colour("accent-soft")),
  ];
  return draw(place, traces, {
    barmode: "stack", bargap: 0.45, height: 110 + 42 * phases.length,
    xaxis: timeAxis(unit, false), yaxis: axis({ autorange: "reversed", showgrid: false }),
  });
}

// Names come from whoever sent them; the plot library would read markup in them.
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const shortened = (id) => (id.length > 18 ? `…${id.slice(-14)}` : id);
const twoLines = (first, second) => `${plain(first)}<br><span style="font-size:11px">${plain(second)}</span>`;

/** Share of phases that passed the quantile at `level`, with exact intervals, against the promise. */
export function coverage(place, strata, p) {
  const one = (row) => row.exceeded.find((e) => e.level === p);
  const reach = (row, side) => 100 * Math.abs(one(row)[side] - one(row).share);
  const counts = ({ misses, n, low, high }) => `${misses} of ${n}, interval ${percent(low)} to ${percent(high)}`;
  const group = (outside, name, fill) => {
    const rows = strata.filter((row) => one(row).outside === outside);
    return {
      type: "scatter", mode: "markers", name, marker: { color: fill, size: 9 },
      y: rows.map(label), x: rows.map((row) => 100 * one(row).share),
      error_x: {
        type: "data", symmetric: false, color: fill, thickness: 1.6, width: 4,
        array: rows.map((row) => reach(row, "high")), arrayminus: rows.map((row) => reach(row, "low")),
      },
      text: rows.map((row) => counts(one(row))), hovertemplate: "%{text}<extra></extra>",
    };
  };
  const groups = [group(false, "as promised, within chance", colour("accent")), group(true, "off the promise", colour("bad"))];
  return draw(place, groups, {
    height: 130 + 40 * strata.length,
    xaxis: axis({ title: `took longer than ${levelName(p)} (%)`, range: [-2, 102] }),
    yaxis: axis({ categoryorder: "array", categoryarray: strata.map(label), autorange: "reversed" }),
    shapes: [upright(100 * (1 - p), { color: colour("ink"), width: 1.4, dash: "dash" })],
  });
}

/** Measured rates of one quantity, with the intervals of their medians; contended ones in a colour of their own. */
export function rates(place, rows, unit) {
  const names = (of) => of.map((row) => plain(rate(row.name, row.median).of));
  const group = (contended, name, fill) => {
    const of = rows.filter((row) => row.contended === contended);
    return {
      type: "scatter", mode: "markers", name, marker: { color: fill, size: 9 }, y: names(of), x: of.map((row) => row.median),
      error_x: {
        type: "data", symmetric: false, color: fill, thickness: 1.6, width: 4,
        array: of.map((row) => row.high - row.median), arrayminus: of.map((row) => row.median - row.low),
      },
      text: of.map((row) => `${rate(row.name, row.median).amount}, ${count(row.samples)} samples`), hovertemplate: "%{text}<extra></extra>",
    };
  };
  return draw(place, [group(false, "measured alone", colour("accent")), group(true, "beside other work", colour("bad"))], {
    height: 130 + 30 * rows.length,
    xaxis: axis({ title: unit, type: "log", tickformat: "~s", dtick: "D2" }),
    yaxis: axis({ categoryorder: "array", categoryarray: names(rows), autorange: "reversed" }),
  });
}

const label = (row) => twoLines(`${row.phase}, ${row.state || "state unknown"}`, row.host || "host unknown");
