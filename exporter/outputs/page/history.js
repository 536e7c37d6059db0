"use strict";

// The last minutes of what is on the page, kept here by row, and the lines that show them.

const KEPT_MS = 5 * 60 * 1000;
const LEAST_SPAN_MS = 30 * 1000; // of a line, so that one is seen soon
const MOST_POINTS = 100;
const LEAST_GAP_MS = 1000; // between two points: a control may ask often

const points = new Map(); // data-key of a row → [when, [utilisation, MiB, watts, °C]]

function remember(root, now) {
  for (const row of root.querySelectorAll("#devices tr[data-key]")) {
    let of = points.get(row.dataset.key);
    if (!of) points.set(row.dataset.key, (of = []));
    if (of.length && now - of.at(-1)[0] < LEAST_GAP_MS) of.pop();
    of.push([now, row.dataset.now.split(",").map((value) => (value === "" ? null : Number(value)))]);
    while (of.length > MOST_POINTS || of[0][0] < now - KEPT_MS) of.shift();
  }
  for (const [key, of] of points) if (of.at(-1)[0] < now - KEPT_MS) points.delete(key);
}

// A line, 100 wide and 20 high; what was not known is a gap.
function line(of, metric, full) {
  const now = of.at(-1)[0];
  const span = Math.min(KEPT_MS, Math.max(LEAST_SPAN_MS, now - of[0][0]));
  const most = full || Math.max(1, ...of.map(([, values]) => values[metric] || 0));
  let path = "";
  let pen = "M";
  for (const [at, values] of of) {
    if (values[metric] === null) {
      pen = "M";
      continue;
    }
    const x = 100 - ((now - at) / span) * 100;
    const y = 19 - (Math.min(values[metric], most) / most) * 18;
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return path;
}

function drawLines(root) {
  const isAll = Boolean(root.getElementById("pod"));
  for (const row of root.querySelectorAll("#devices tr[data-key]")) {
    const of = points.get(row.dataset.key);
    for (const spark of of ? row.querySelectorAll(".spark") : []) {
      // the table shows the first alone, and a pod's own view all
      if (isAll || spark.dataset.metric === "0") spark.firstChild.setAttribute("d", line(of, Number(spark.dataset.metric), Number(spark.dataset.full)));
    }
  }
}
