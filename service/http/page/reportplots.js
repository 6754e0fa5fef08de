// Plots of the report: each takes plain data and gives what the library draws.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(share < 0.1 ? 2 : 1)} %`);
const count = (n) => n.toLocaleString("en");
const number = (value, digits = 3) => (value === null ? "–" : Number(value.toPrecision(digits)).toString());
const levelName = (p) => `p${Number((p * 100).toFixed(1))}`;

const axis = (title, more = {}) => ({
  title: { text: title, font: { size: 12.5 }, standoff: 8 }, gridcolor: colour("grid"), linecolor: colour("line"),
  zeroline: false, automargin: true, fixedrange: true, tickfont: { size: 12 }, ...more,
});

const IDEAL = "true to the word";

/** Draw traces, or say below the place that there is nothing to draw. */
function draw(place, traces, shape) {
  place.hidden = traces.every((one) => one.name === IDEAL || one.x.length === 0);
  place.nextElementSibling.hidden = !place.hidden;
  if (place.hidden) return;
  place.style.height = `${shape.height ?? 320}px`;
  Plotly.react(place, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 56, r: 16, t: 26, b: 46 },
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("quiet") },
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: colour("ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12.5 } }, ...shape,
  }, { displayModeBar: false, responsive: true });
}

const upright = (x) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color: colour("ink"), dash: "dash", width: 1.4 } });
const level = (y) => ({ type: "line", x0: 0, x1: 1, xref: "paper", y0: y, y1: y, line: { color: colour("ink"), dash: "dash", width: 1.4 } });
const bars = (low, mid, high) => ({ type: "data", symmetric: false, array: high.map((v, i) => v - mid[i]), arrayminus: mid.map((v, i) => v - low[i]), thickness: 1.5, width: 4 });

/** Shares with intervals, one line a row: [{name, share, low, high, bad, text}], against a promise. */
function shares(place, rows, promise, title) {
  const group = (bad, name, fill) => {
    const mine = rows.filter((row) => row.bad === bad);
    const x = mine.map((row) => 100 * row.share);
    return {
      type: "scatter", mode: "markers", name, marker: { color: fill, size: 9 }, x, y: mine.map((row) => plain(row.name)),
      error_x: { ...bars(mine.map((r) => 100 * r.low), x, mine.map((r) => 100 * r.high)), color: fill },
      text: mine.map((row) => plain(row.text)), hovertemplate: "%{text}<extra></extra>",
    };
  };
  draw(place, [group(false, "as promised, within chance", colour("accent")), group(true, "off the promise", colour("bad"))], {
    height: 120 + 28 * rows.length, xaxis: axis(title, { rangemode: "tozero" }), shapes: promise === null ? [] : [upright(100 * promise)],
    yaxis: axis("", { categoryorder: "array", categoryarray: rows.map((row) => plain(row.name)), autorange: "reversed" }),
  });
}

/** Spans from low to high, one line a row. */
function spans(place, rows, promise, title) {
  const trace = {
    type: "bar", orientation: "h", y: rows.map((row) => plain(row.name)), base: rows.map((row) => 100 * row.low),
    x: rows.map((row) => Math.max(100 * (row.high - row.low), 0.15)), marker: { color: colour("accent") },
    text: rows.map((row) => plain(row.text)), textposition: "none", hovertemplate: "%{text}<extra></extra>",
  };
  draw(place, [trace], {
    height: 110 + 26 * rows.length, bargap: 0.55, xaxis: axis(title, { rangemode: "tozero" }), shapes: [upright(100 * promise)],
    yaxis: axis("", { autorange: "reversed" }),
  });
}

/** Heights of the twentieths of (0, 1), as a share of an even one. */
function histogram(place, weights) {
  const total = weights.reduce((a, b) => a + b, 0) || 1;
  const trace = {
    type: "bar", x: weights.map((_, i) => (i + 0.5) / weights.length), y: weights.map((w) => (weights.length * w) / total),
    marker: { color: colour("accent") }, hovertemplate: "%{y:.2f} of an even share near %{x:.3f}<extra></extra>",
  };
  draw(place, [trace], { bargap: 0.08, shapes: [level(1)], xaxis: axis("place in the answered distribution"), yaxis: axis("of an even share", { rangemode: "tozero" }) });
}

/** Observed share at or below each twentieth, against the promised one. */
function reliability(place, weights) {
  const total = weights.reduce((a, b) => a + b, 0) || 1;
  let sum = 0;
  const y = [0, ...weights.map((w) => (100 * (sum += w)) / total)];
  const x = y.map((_, i) => (100 * i) / weights.length);
  const ideal = { type: "scatter", mode: "lines", name: IDEAL, x: [0, 100], y: [0, 100], line: { color: colour("quiet"), dash: "dash", width: 1.3 } };
  const seen = { type: "scatter", mode: "lines+markers", name: "observed", x, y, line: { color: colour("accent"), width: 2 }, hovertemplate: "%{y:.1f} % ended by p%{x:.0f}<extra></extra>" };
  draw(place, [ideal, seen], { xaxis: axis("promised (%)"), yaxis: axis("ended by then (%)") });
}

/** Shares in order of time, with the changes found on the way: [{at, share, low, high, text}], [{at, text}]. */
function overTime(place, rows, promise, changes, title) {
  const y = rows.map((row) => 100 * row.share);
  const trace = {
    type: "scatter", mode: "lines+markers", x: rows.map((row) => row.at), y, line: { color: colour("accent"), width: 1.6 },
    error_y: { ...bars(rows.map((r) => 100 * r.low), y, rows.map((r) => 100 * r.high)), color: colour("accent-soft") },
    text: rows.map((row) => row.text), hovertemplate: "%{text}<extra></extra>",
  };
  draw(place, [trace], {
    xaxis: axis("start of the phase (UTC)", { type: "date" }), yaxis: axis(title, { rangemode: "tozero" }),
    shapes: [level(100 * promise), ...changes.map((one) => ({ ...upright(one.at), line: { color: colour("second"), width: 1.2 } }))],
    annotations: changes.map((one) => ({ x: one.at, y: 1, yref: "paper", yanchor: "bottom", text: plain(one.text), showarrow: false, font: { size: 11, color: colour("second") } })),
  });
}

/** Points with names: [{x, y, name, n}]. */
function points(place, rows, xTitle, yTitle) {
  const trace = {
    type: "scatter", mode: "markers", x: rows.map((row) => row.x), y: rows.map((row) => row.y),
    marker: { color: colour("accent"), size: rows.map((row) => 7 + 3 * Math.log10(1 + row.n)), opacity: 0.75 },
    text: rows.map((row) => plain(row.name)), hovertemplate: "%{text}<br>width %{x:.2f}, skill %{y:.2f}<extra></extra>",
  };
  draw(place, [trace], { shapes: [level(0)], xaxis: axis(xTitle, { rangemode: "tozero" }), yaxis: axis(yTitle) });
}

/** Bars side by side: names, then {series: values}. */
function grouped(place, names, series, title, stacked = false) {
  const fills = ["accent", "quiet", "second", "good"];
  const traces = Object.entries(series).map(([name, values], i) => ({
    type: "bar", name, x: names.map(plain), y: values, marker: { color: colour(fills[i]) }, hovertemplate: `${name}: %{y:.4~g}<extra></extra>`,
  }));
  draw(place, traces, { barmode: stacked ? "stack" : "group", bargap: 0.4, xaxis: axis("", { type: "category" }), yaxis: axis(title, { rangemode: "tozero" }) });
}

/** What was promised against what was met, with intervals. */
function plans(place, rows) {
  const x = rows.map((row) => 100 * row.answered), y = rows.map((row) => 100 * row.share);
  const ideal = { type: "scatter", mode: "lines", name: IDEAL, x: [0, 100], y: [0, 100], line: { color: colour("quiet"), dash: "dash" } };
  const seen = {
    type: "scatter", mode: "markers", name: "met", x, y, marker: { color: colour("accent"), size: 9 },
    error_y: bars(rows.map((r) => 100 * r.low), y, rows.map((r) => 100 * r.high)),
    text: rows.map((row) => `${row.met} of ${row.n}`), hovertemplate: "%{text}<extra></extra>",
  };
  draw(place, [ideal, seen], { xaxis: axis("answered chance (%)"), yaxis: axis("met (%)") });
}
