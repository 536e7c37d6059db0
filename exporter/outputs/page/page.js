// Keeps the page up to date: asks for the objects of /container/metrics every few seconds and shows them as the exporter
// has them in its HTML (devices.py; a test compares the two). What came in the last minutes is kept here, for the lines.
//
// Whatever pods, nodes and upstreams call themselves goes into textContent and nowhere else: the page's policy
// (require-trusted-types-for) has the browser refuse anything that would make HTML of a string.
"use strict";

const EVERY_MS = 3000;
const HEALTH_EVERY_MS = 15000;
const KEPT_MS = 5 * 60 * 1000;
const LEAST_SPAN_MS = 30 * 1000; // of a line, so that one is seen soon
const MOST_POINTS = 100;
// Asking must cost the exporter little, however many devices there are: a pause is so many times as long as the answer
// took, and a second for so many characters of it.
const PAUSE_FACTOR = 20;
const CHARS_A_SECOND = 400000;
const SHOWN_AT_ONCE = 200;
const SETTLED_MS = 700;
const POWER_SCALES = [50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000, 1200, 1500, 2000, 3000];
const HOTTEST = 100;
const SHARED =
  " Of a shared GPU every owner has a row, and its name has what it does in all. What is not measured by owner is as" +
  " --sharing has it: the whole GPU's, unless it divides.";
const OWNERS_UNKNOWN = "X-Owners-Unknown";
// The states of a device; of its objects' the first of these is the device's (states.py).
const STATES = ["used", "held", "idle", "outside", "unknown", "failing", "free", "cut"];
const IN_HAND = ["used", "held", "idle"];
const SEVERAL = "several owners, which --sharing device does not name";
const WITHOUT_POD = { free: "free", failing: "failing", cut: "cut into instances", outside: "used around Kubernetes", used: SEVERAL, held: SEVERAL, idle: SEVERAL };
const SVG = "http://www.w3.org/2000/svg";
const MOST_USERS = 3; // that are named
const MOST_CHARS = 60; // of a command
const EVENT_KEYS = [
  ...["at", "node_name", "device_id", "device_uuid", "pci_address", "mig_instance_id"],
  ...["kind", "code", "severity", "name", "text", "remedy"],
];
const EVENT_KINDS = { xid: "XID", sxid: "SXid", lost: "lost", pcie: "PCI Express" };
const MOST_EVENTS = 20;
const MOST_HOLDERS = 3; // of a device at an event
const MOST_EVENT_CHARS = 200;
const METRICS = ["Utilisation", "Memory", "Power", "Temperature"];

const main = document.querySelector("main");
const byId = (id) => document.getElementById(id);
const oneNode = main.dataset.node;
const withNode = oneNode !== undefined;
const metricsUrl = "container/metrics" + (oneNode ? "?node=" + encodeURIComponent(oneNode) : "");

const page = {
  rows: null, // the objects that came last
  nodes: null,
  history: new Map(), // key of a row → its points
  limit: SHOWN_AT_ONCE,
  paused: false,
  troubles: { objects: "", health: "" },
};

// --- text ---------------------------------------------------------------------------------------------------------

// What cannot be seen (a control, a mark of direction) is shown by its number.
function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

function make(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

function said(text) {
  return text ? make("bdi", "", visible(text)) : "";
}

function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

// --- what an object says --------------------------------------------------------------------------------------------

const identity = (row) => row.device_uuid || row.device;
const instanceOf = (row) => row.mig_instance_id || "";
const deviceOf = (row) => JSON.stringify([row.node_name, identity(row), instanceOf(row)]);
const rowKey = (row) => JSON.stringify([row.node_name, identity(row), instanceOf(row), row.namespace, row.pod, row.container]);

function utilisation(row) {
  if (row.gpu_utilization !== null) return row.gpu_utilization;
  return row.graphics_engine_active === null ? null : row.graphics_engine_active * 100;
}

// What the object says of itself; an older exporter behind the cluster role says nothing.
function stateOf(row) {
  if (STATES.includes(row.state)) return row.state;
  return row.entity === "mig-parent" ? "cut" : row.pod || row.gpu_shared ? "held" : "free";
}

// For how long the container holds the device idle; nothing below a minute, and where it is not known.
function idleFor(row) {
  const minutes = row.idle_since ? Math.floor((Date.parse(row.timestamp) - Date.parse(row.idle_since)) / 60000) : 0;
  if (minutes >= 2 * 24 * 60) return `, ${Math.floor(minutes / (24 * 60))} d`;
  if (minutes >= 60) return `, ${Math.floor(minutes / 60)} h`;
  return minutes > 0 ? `, ${minutes} min` : "";
}

const stateOfDevice = (rows) => STATES.find((state) => rows.some((row) => stateOf(row) === state));

// Whether the values were read before the device changed hands.
const isBefore = (row) => Boolean(row.holder_since && row.read_at && row.holder_since >= row.read_at);

function totalMib(row) {
  if (row.framebuffer_total !== null) return row.framebuffer_total;
  return row.framebuffer_used === null || row.framebuffer_free === null ? null : row.framebuffer_used + row.framebuffer_free;
}

function scalesOf(rows) {
  const watts = new Map();
  const mib = new Map();
  for (const row of rows) {
    const model = row.model_name;
    if (row.power_usage !== null) {
      const scale = POWER_SCALES.find((each) => each >= row.power_usage) || POWER_SCALES.at(-1);
      watts.set(model, Math.max(scale, watts.get(model) || 0));
    }
    if (row.entity === "gpu" && !row.gpu_shared && totalMib(row) !== null) {
      mib.set(model, Math.max(totalMib(row), mib.get(model) || 0));
    }
  }
  return { watts, mib };
}

function fullMib(row, scales) {
  if (!row.gpu_shared) return totalMib(row);
  return (row.entity === "gpu" && scales.mib.get(row.model_name)) || null;
}

const gib = (mib) => (Math.floor((mib / 1024) * 10 + 0.5) / 10).toFixed(1);

// Of each metric: its text in parts (one in brackets is small), its value, and what a full bar means.
function metricsOf(row, scales) {
  const percent = utilisation(row);
  const used = row.framebuffer_used;
  const total = fullMib(row, scales);
  const whole = (value, unit) => (value === null ? [] : [`${Math.round(value)} ${unit}`]);
  if (row.entity === "mig-parent" && used === null && row.power_usage === null && row.temperature === null) return null;
  return [
    { parts: whole(percent, "%"), value: percent, full: 100 },
    { parts: used === null ? [] : total ? [gib(used), `of ${gib(total)}`, "GiB"] : [`${gib(used)} GiB`], value: used, full: total },
    { parts: whole(row.power_usage, "W"), value: row.power_usage, full: scales.watts.get(row.model_name) || null },
    { parts: whole(row.temperature, "°C"), value: row.temperature, full: HOTTEST },
  ];
}

// --- the last minutes -------------------------------------------------------------------------------------------------

function remember(rows, now) {
  const seen = new Set();
  for (const row of rows) {
    const key = rowKey(row);
    seen.add(key);
    let points = page.history.get(key);
    if (!points) page.history.set(key, (points = []));
    points.push([now, utilisation(row), row.framebuffer_used, row.power_usage, row.temperature]);
    while (points.length > MOST_POINTS || points[0][0] < now - KEPT_MS) points.shift();
  }
  for (const key of page.history.keys()) if (!seen.has(key)) page.history.delete(key);
}

// A line of the last minutes, 100 wide and 20 high; what was not known is a gap.
function line(points, index, full) {
  const now = points.at(-1)[0];
  const span = Math.min(KEPT_MS, Math.max(LEAST_SPAN_MS, now - points[0][0]));
  const most = full || Math.max(1, ...points.map((point) => point[index] || 0));
  let path = "";
  let pen = "M";
  for (const point of points) {
    if (point[index] === null) {
      pen = "M";
      continue;
    }
    const x = 100 - ((now - point[0]) / span) * 100;
    const y = 19 - (Math.min(point[index], most) / most) * 18;
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return path;
}

// --- the table --------------------------------------------------------------------------------------------------------

// Brings the children of `parent`, from the one after `start` on, to `items` ({key, signature, build}), and touches only
// what has changed.
function reconcile(parent, records, items, start = null) {
  const wanted = new Set(items.map((item) => item.key));
  for (const [key, record] of records) {
    if (!wanted.has(key)) {
      record.element.remove();
      records.delete(key);
    }
  }
  let after = start;
  for (const item of items) {
    let record = records.get(item.key);
    if (!record || record.signature !== item.signature) {
      const made = item.build();
      if (record) record.element.replaceWith(made.element);
      record = { signature: item.signature, ...made };
      records.set(item.key, record);
    }
    const next = after ? after.nextElementSibling : parent.firstElementChild;
    if (next !== record.element) parent.insertBefore(record.element, next);
    after = record.element;
  }
}

function cell(title, ...children) {
  const made = make("td", "", ...children);
  made.setAttribute("role", "cell");
  made.dataset.label = title;
  return made;
}

function rowHeader(...children) {
  const made = make("th", "", ...children);
  made.scope = "row";
  made.setAttribute("role", "rowheader");
  return made;
}

function tableRow(className, ...cells) {
  const made = make("tr", className, ...cells);
  made.setAttribute("role", "row");
  return made;
}

function nameOf(row, owners) {
  const number = row.device_id || row.device;
  let what = number ? `GPU ${number}` : "GPU";
  if (row.entity === "mig") what = instanceOf(row) ? `${what} / MIG ${instanceOf(row)}` : "MIG";
  const badges = row.mig_profile ? [row.mig_profile] : [];
  if (owners > 1) badges.push(`shared by ${owners}`);
  else if (row.gpu_shared) badges.push("shared");
  return [
    make("span", "name", said(what)),
    ...badges.flatMap((badge) => [" ", make("span", "badge", said(badge))]),
    ...healthOf(row),
    " ",
    make("small", "model", said(row.model_name)),
    " ",
    make("small", "uuid", said(row.device_uuid)),
    ...(wholeOf(row) ? [" ", make("small", "whole", wholeOf(row))] : []),
  ];
}

// What is wrong with the device, and what to do, and its last XID.
function healthOf(row) {
  const health = row.health === undefined ? "ok" : row.health;
  const why = Array.isArray(row.health_reasons) ? row.health_reasons : [];
  const xid = Number.isInteger(row.last_xid) ? row.last_xid : 0;
  const isWhy = xid && why.some((reason) => String(reason).startsWith(`Xid ${xid} `));
  const summary = said(isWhy ? `${health}: XID ${xid}` : health);
  const words = health === "ok" ? [] : [" ", make("details", "health", make("summary", "", summary), said(why.join("; ")))];
  return isWhy || !xid ? words : [...words, " ", make("small", "xid", `last XID ${xid}`)];
}

// Who uses the device and does not hold it (states.py); on the first row of the device.
function usersOf(row, number) {
  const users = number === 0 && Array.isArray(row.used_by) ? row.used_by : [];
  const nameOfUser = (user) => {
    if (user.pod) return `${user.namespace}/${user.pod}`;
    return user.id ? `${user.engine || "container"} ${user.id.slice(0, 12)}` : [...(user.command || "")].slice(0, MOST_CHARS).join("");
  };
  const names = [...new Set(users.map(nameOfUser).filter(Boolean))];
  if (!names.length) return "";
  const some = names.length <= MOST_USERS ? names : [...names.slice(0, MOST_USERS - 1), `${names.length - 2} others`];
  return `used by ${some.join(" and ")}, which ${names.length === 1 ? "does" : "do"} not hold it`;
}

// What a shared device does as a whole, whose rows may have its owners' parts.
function wholeOf(row) {
  const own = row.whole_device || {};
  const known = [
    [own.gpu_utilization, (percent) => `${Math.round(percent)} %`],
    [own.framebuffer_used, (mib) => `${gib(mib)} GiB`],
    [own.power_usage, (watts) => `${Math.round(watts)} W`],
  ].filter(([value]) => typeof value === "number");
  return known.length ? `in all ${known.map(([value, written]) => written(value)).join(", ")}` : "";
}

function nobody(row) {
  const state = stateOf(row);
  if (state === "unknown") return make("details", "why", make("summary", "", "not known"), said(row.state_reason));
  return make("span", state === "outside" ? "badge idle" : "none", WITHOUT_POD[state]);
}

function metricCell(title, metric) {
  if (metric.value === null) return { td: cell(title, make("span", "none", "unknown")) };
  const value = make("span", "value");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  svg.append(path);
  const meter = metric.full ? document.createElement("meter") : null;
  if (meter) meter.setAttribute("aria-hidden", "true");
  return { td: cell(title, value, svg, meter), value, path, meter };
}

function buildDevice(rows, scales) {
  const body = document.createElement("tbody");
  body.setAttribute("role", "rowgroup");
  const shown = [];
  rows.forEach((row, number) => {
    const tr = tableRow("");
    if (number === 0) {
      const node = withNode ? cell("Node", said(row.node_name)) : null;
      const name = rowHeader(...nameOf(row, rows.length));
      for (const each of [node, name]) if (each && rows.length > 1) each.rowSpan = rows.length;
      tr.append(...(node ? [node, name] : [name]));
    }
    const badge = row.pod ? make("span", "badge idle") : null;
    if (badge) badge.hidden = true;
    const users = usersOf(row, number);
    const others = users ? [" ", make("small", "users", said(users))] : [];
    tr.append(
      row.pod
        ? cell("Pod", make("span", "pod", said(row.pod)), " ", make("small", "", said(row.container)), " ", badge, ...others)
        : cell("Pod", nobody(row), ...others),
      cell("Namespace", row.pod ? said(row.namespace) : ""),
      row.pod && row.workload_name !== undefined
        ? cell("Workload", said(row.workload_name), " ", make("small", "", said(row.workload_kind)))
        : cell("Workload"),
    );
    const metrics = metricsOf(row, scales);
    const cells = METRICS.map((title, index) => (metrics ? metricCell(title, metrics[index]) : { td: cell(title) }));
    if (isBefore(row) && cells[0].value) cells[0].value.after(" ", make("span", "badge before", "before"));
    tr.append(...cells.map((each) => each.td));
    body.append(tr);
    shown.push({ tr, badge, cells });
  });
  return { element: body, shown };
}

// What a device's rows are made of, beside numbers that change in place.
function signatureOf(rows, scales) {
  return JSON.stringify(
    rows.map((row, number) => [
      usersOf(row, number), row.device_id, row.device, row.model_name, row.entity, row.mig_profile, row.gpu_shared,
      row.namespace, row.pod, row.container, row.workload_name, row.workload_kind,
      row.health, row.health_reasons, row.last_xid,
      row.pod ? "" : [stateOf(row), row.state_reason], isBefore(row), Boolean(wholeOf(row)),
      (metricsOf(row, scales) || []).map((metric) => [metric.value === null, Boolean(metric.full)]),
    ]),
  );
}

function refreshDevice(record, rows, scales, now) {
  setText(record.element.querySelector(".whole"), wholeOf(rows[0]));
  rows.forEach((row, number) => {
    const { tr, badge, cells } = record.shown[number];
    const state = stateOf(row);
    tr.className = [state, number > 0 && "more", isBefore(row) && "before"].filter(Boolean).join(" ");
    const key = rowKey(row);
    if (badge) {
      badge.hidden = state !== "idle";
      setText(badge, `held but idle${idleFor(row)}`);
    }
    const points = page.history.get(key);
    (metricsOf(row, scales) || []).forEach((metric, index) => {
      const { value, path, meter } = cells[index];
      if (!value) return;
      const text = metric.parts.join(" ");
      if (value.dataset.said !== text) {
        value.dataset.said = text;
        value.replaceChildren(
          ...metric.parts.flatMap((part, at) => [at ? " " : "", at === 1 ? make("small", "", part) : part]).filter(Boolean),
        );
      }
      if (meter) {
        meter.max = metric.full;
        meter.value = Math.min(metric.value, metric.full);
      }
      path.setAttribute("d", line(points, index + 1, metric.full));
    });
  });
}

const haystacks = new WeakMap();

function matches(rows) {
  const show = byId("show").value;
  if (show === "held" && !IN_HAND.includes(stateOfDevice(rows))) return false;
  if (show === "idle" && !rows.some((row) => stateOf(row) === "idle")) return false;
  if (["free", "failing", "outside", "unknown"].includes(show) && stateOfDevice(rows) !== show) return false;
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  let text = haystacks.get(rows);
  if (text === undefined) {
    const texts = rows.flatMap((row) => [
      row.node_name, row.device_id && `gpu ${row.device_id}`, row.device_uuid, row.model_name, row.mig_profile, row.namespace,
      row.pod, row.container, row.workload_name, row.workload_kind,
    ]);
    haystacks.set(rows, (text = texts.filter(Boolean).join("\n").toLowerCase()));
  }
  return words.every((word) => text.includes(word));
}

const devices = new Map();
let groups = [];
let isFirst = true;

function groupsOf(rows) {
  const made = [];
  let last = null;
  for (const row of rows) {
    const device = deviceOf(row);
    if (device !== last) made.push([]);
    last = device;
    made.at(-1).push(row);
  }
  return made;
}

function showDevices() {
  if (!page.rows) return 0;
  const table = byId("devices");
  if (isFirst) {
    for (const body of [...table.tBodies]) body.remove();
    const shared = byId("shared");
    byId("devices-caption").replaceChildren("GPUs and MIG instances, and who holds them. Bars: now. Lines: the last minutes.", shared);
    isFirst = false;
  }
  const now = Date.now();
  const scales = scalesOf(page.rows);
  setText(byId("shared"), page.rows.some((row) => row.gpu_shared) ? SHARED : "");
  const found = groups.filter(matches);
  const shown = found.slice(0, page.limit);
  const items = shown.map((rows) => ({
    key: deviceOf(rows[0]),
    signature: signatureOf(rows, scales),
    build: () => buildDevice(rows, scales),
    rows,
  }));
  reconcile(table, devices, items, table.tHead);
  for (const item of items) refreshDevice(devices.get(item.key), item.rows, scales, now);
  const more = byId("more");
  more.hidden = shown.length === found.length;
  setText(more, `Show more (${found.length - shown.length} of ${found.length} GPUs and instances are not shown)`);
  return found.length;
}

// --- figures, sources, nodes ------------------------------------------------------------------------------------------

function figuresOf(rows) {
  const gpus = new Set();
  const figures = { gpus: 0, instances: 0, held: 0, idle: 0, free: 0, failing: 0, outside: 0, unknown: 0 };
  for (const ofDevice of groupsOf(rows)) {
    const row = ofDevice[0];
    const state = stateOfDevice(ofDevice);
    if (row.entity === "mig") figures.instances += 1;
    if (!identity(row).startsWith("MIG-")) gpus.add(JSON.stringify([row.node_name, identity(row)]));
    if (IN_HAND.includes(state)) figures.held += 1;
    if (state !== "held" && state in figures) figures[state] += 1;
  }
  figures.gpus = gpus.size;
  return figures;
}

function showFigures() {
  for (const [name, number] of Object.entries(figuresOf(page.rows))) setText(byId(`figure-${name}`), String(number));
}

const sourceRows = new Map();
let sourcesDown = null;

function upOrDown(up) {
  const word = up === null ? "not asked yet" : up ? "up" : "down";
  return make("span", `state ${word.split(" ")[0]}`, word);
}

function showSources(sources) {
  const body = byId("sources-table").tBodies[0];
  if (!sourceRows.size) body.replaceChildren();
  const items = Object.entries(sources).map(([name, source]) => ({
    key: name,
    signature: JSON.stringify([source.up, source.message, source.remedy]),
    build: () => ({
      element: tableRow(
        "",
        rowHeader(said(name)),
        cell("State", upOrDown(source.up)),
        cell("What is wrong", said(source.message)),
        cell("What to do", said(source.remedy)),
      ),
    }),
  }));
  reconcile(body, sourceRows, items);
  const all = Object.entries(sources);
  setText(byId("sources-up"), `${all.filter(([, source]) => source.up).length} of ${all.length} up`);
  const down = all.filter(([, source]) => source.up === false).map(([name]) => visible(name));
  if (sourcesDown !== null && down.join() !== sourcesDown) {
    announce(down.length ? `Sources that are down: ${down.join(", ")}` : "All sources are up again");
    if (down.length) byId("sources").open = true;
  }
  sourcesDown = down.join();
}

const nodeRows = new Map();

function showNodes() {
  if (!page.nodes || !page.rows) return;
  const body = byId("nodes-table").tBodies[0];
  const before = new Map([...body.rows].map((row) => [row.cells[0].textContent, [...row.cells].slice(3, 7)]));
  if (!nodeRows.size) body.replaceChildren();
  const rowsOf = new Map();
  for (const row of page.rows) rowsOf.set(row.node_name, [...(rowsOf.get(row.node_name) || []), row]);
  const items = page.nodes.map((node) => {
    const rows = rowsOf.get(node.name);
    let counts = ["", "", "", ""];
    if (rows && !node.missing) {
      const figures = figuresOf(rows);
      counts = [figures.gpus, figures.held, figures.idle, figures.unknown].map(String);
    } else if (oneNode && !node.missing) {
      // the objects of the others were not asked for
      counts = (before.get(visible(node.name)) || []).map((each) => each.textContent);
    }
    const answered = node.answered_at ? `${node.answered_at.slice(11, 19)} UTC` : "none";
    const trouble = node.message ? `${node.message} -> ${node.remedy}` : "";
    return {
      key: node.name,
      signature: JSON.stringify([node.missing, trouble, counts]),
      answered,
      build: () => {
        const link = make("a", "", said(node.name));
        link.href = `?node=${encodeURIComponent(node.name)}`;
        const [gpus, held, idle, unknown] = counts;
        return {
          element: tableRow(
            "",
            rowHeader(link),
            cell("State", upOrDown(!node.missing)),
            cell("Last answer", answered),
            cell("GPUs", gpus),
            cell("Held", held),
            cell("Held but idle", idle),
            cell("Unknown", unknown),
            cell("What is wrong", said(trouble)),
          ),
        };
      },
    };
  });
  reconcile(body, nodeRows, items);
  for (const item of items) setText(nodeRows.get(item.key).element.cells[2], item.answered);
  const missing = page.nodes.filter((node) => node.missing);
  setText(byId("nodes-up"), `${page.nodes.length - missing.length} of ${page.nodes.length} answer`);
  const answer = page.nodes.length - missing.length;
  setText(byId("about"), `${page.nodes.length} nodes: ${answer} have answered, ${missing.length} are missing.`);
}

// --- errors of GPUs ---------------------------------------------------------------------------------------------------

function textsOf(event) {
  const [at, node, index, uuid, address, instance, kind, ...rest] = EVENT_KEYS.map((key) => String(event[key] || ""));
  const remedy = rest.pop();
  const log = rest.pop();
  const name = rest.pop();
  const gpu = `${index || uuid || address}${instance && `, instance ${instance}`}`;
  const error = [EVENT_KINDS[kind] || kind, ...rest, name || log].filter(Boolean).join(" ");
  const holders = Array.isArray(event.holders) ? event.holders.map((held) => `${held.namespace}/${held.pod}`) : [];
  const names = [...new Set(holders)];
  const more = names.length > MOST_HOLDERS ? ` and ${names.length - MOST_HOLDERS} more` : "";
  const heldBy = event.holders === null ? "unknown" : names.slice(0, MOST_HOLDERS).join(", ") + more;
  const texts = { Time: `${at.slice(0, 19).replace("T", " ")} UTC`, Node: node, GPU: gpu, Error: error, "Held by": heldBy };
  return Object.entries({ ...texts, "What to do": remedy }).filter(([title]) => withNode || title !== "Node");
}

function showEvents(events) {
  const rows = events.filter((event) => !oneNode || event.node_name === oneNode).slice(0, MOST_EVENTS);
  byId("events").hidden = !rows.length;
  const cells = rows.map((event) => textsOf(event).map(([title, text]) => [title, said([...text].slice(0, MOST_EVENT_CHARS).join(""))]));
  const made = cells.map(([[, time], ...others]) => tableRow("", rowHeader(time), ...others.map((of) => cell(...of))));
  byId("events-table").tBodies[0].replaceChildren(...made);
}

function troubleOfNodes(health) {
  const which = health.which_nodes;
  if (which && which.message) return `It is not known which nodes there are: ${which.message} -> ${which.remedy}`;
  const missing = health.nodes.filter((node) => node.missing);
  if (!missing.length) return "";
  const first = missing.slice(0, 20).map((node) => `${node.name}: ${node.message} -> ${node.remedy}`);
  const more = missing.length > first.length ? `; and ${missing.length - first.length} more` : "";
  return `Nodes are missing, and their GPUs with them: ${first.join("; ")}${more}`;
}

// --- what the reader is told ----------------------------------------------------------------------------------------

function announce(text) {
  setText(byId("status"), text);
}

function tell(kind, trouble) {
  page.troubles[kind] = trouble;
  const text = page.troubles.objects || page.troubles.health;
  const place = byId("trouble");
  place.hidden = !text;
  if (place.textContent !== visible(text)) place.replaceChildren(said(text));
}

// --- asking -----------------------------------------------------------------------------------------------------------

async function ask(url) {
  const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(30000) });
  const text = await response.text();
  if (response.ok) return [JSON.parse(text), text.length, response.headers];
  let reason = "";
  try {
    reason = JSON.parse(text).error;
  } catch {
    reason = text.trim();
  }
  throw new Error(reason || `the exporter answered with status ${response.status}`);
}

function isIdle() {
  return page.paused || document.hidden;
}

async function askForObjects() {
  const began = performance.now();
  let chars = 0;
  try {
    const [rows, length, headers] = await ask(metricsUrl);
    chars = length;
    const isSilent = headers.has(OWNERS_UNKNOWN);
    remember(rows, Date.now());
    page.rows = rows;
    groups = groupsOf(rows);
    if (!page.paused) show();
    if (main.classList.contains("stale")) announce("The table is kept up to date again");
    main.classList.remove("stale");
    tell("objects", isSilent ? main.dataset.silent || "" : "");
    setText(byId("updated"), `Updated at ${new Date().toLocaleTimeString("en-GB")}`);
  } catch (error) {
    const isMute = error instanceof TypeError || error.name === "TimeoutError";
    const why = isMute ? "the exporter does not answer" : "the exporter has no GPU metrics";
    if (!main.classList.contains("stale")) announce(`The table is out of date: ${why}`);
    main.classList.add("stale");
    tell("objects", isMute ? "The exporter does not answer; the table shows what it said last." : error.message);
  }
  const took = performance.now() - began;
  return Math.max(EVERY_MS, took * PAUSE_FACTOR, (chars / CHARS_A_SECOND) * 1000);
}

async function askForHealth() {
  try {
    const [health, chars] = await ask(main.dataset.health);
    showSources(health.sources);
    if (health.nodes) {
      page.nodes = health.nodes;
      showNodes();
      tell("health", troubleOfNodes(health));
    }
    if (main.dataset.events) showEvents((await ask(main.dataset.events))[0]);
    return Math.max(HEALTH_EVERY_MS, (chars / CHARS_A_SECOND) * 1000);
  } catch {
    return HEALTH_EVERY_MS; // the objects tell of it
  }
}

function show() {
  showDevices();
  showFigures();
  showNodes();
}

const wakers = [];

async function keepAsking(askOnce) {
  for (;;) {
    if (isIdle()) await new Promise((resolve) => wakers.push(resolve));
    const pause = await askOnce();
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function wake() {
  if (!isIdle()) for (const resolve of wakers.splice(0)) resolve();
}

let settled = 0;

function refilter() {
  page.limit = SHOWN_AT_ONCE;
  const count = showDevices();
  clearTimeout(settled);
  settled = setTimeout(() => announce(`${count} of ${groups.length} GPUs and instances match`), SETTLED_MS);
}

byId("filter").addEventListener("input", refilter);
byId("show").addEventListener("change", refilter);
byId("more").addEventListener("click", () => {
  page.limit += SHOWN_AT_ONCE;
  showDevices();
});
byId("pause").addEventListener("click", () => {
  page.paused = !page.paused;
  setText(byId("pause"), page.paused ? "Go on updating" : "Pause updates");
  announce(page.paused ? "Updates are paused" : "Updates go on");
  wake();
});
document.addEventListener("visibilitychange", wake);
byId("tools").hidden = false;
keepAsking(askForObjects);
keepAsking(askForHealth);
