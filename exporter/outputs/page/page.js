// Keeps the page up to date. The exporter makes every row: this asks for the same page again and takes over what has
// changed (morph.js), draws the lines of the last minutes (history.js), and has controls change the page's address.
// Whoever reads this for the first time: begin with `refresh`.

const EVERY_MS = 3000;
// Asking must cost the exporter little, however many devices there are: a pause is so many times as long as the answer
// took, and a second for so many characters of it.
const PAUSE_FACTOR = 20;
const CHARS_A_SECOND = 400000;
const SETTLED_MS = 300;
const TIMEOUT_MS = 30000;

const byId = (id) => document.getElementById(id);
const page = { isPaused: false, isStale: false, timer: 0, asks: 0, down: null };

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const announce = (text) => setText(byId("status"), text);

// The page at the present address, as a document in which nothing runs: the browser's policy forbids to make one of a
// string, and this is the way without.
function ask() {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href.split("#")[0]);
    request.responseType = "document";
    request.setRequestHeader("Cache-Control", "no-cache");
    request.timeout = TIMEOUT_MS;
    request.onload = () => (request.status === 200 && request.response ? resolve(request.response) : reject(request.status));
    request.onerror = request.ontimeout = () => reject(0);
    request.send();
  });
}

function sayWhatIsWrong(text) {
  const item = document.createElement("li");
  item.textContent = text;
  byId("trouble").replaceChildren(item);
  byId("trouble").hidden = false;
}

function takeOver(fresh) {
  const began = performance.now();
  const isStale = fresh.querySelector("main").dataset.stale !== undefined;
  if (isStale) {
    // what was seen last stays; what is wrong, and with which source, is new
    for (const id of ["trouble", "sources"]) morph(byId(id), fresh.getElementById(id));
  } else {
    morph(document.body, fresh.body);
    document.title = fresh.title;
    remember(document, Date.now());
    drawLines(document);
  }
  saySources(fresh);
  setStale(isStale, "the exporter has no GPU metrics");
  setText(byId("updated"), `Updated at ${new Date().toLocaleTimeString("en-GB")}`);
  performance.measure("update", { start: began, end: performance.now() });
}

function setStale(isStale, why) {
  if (isStale !== page.isStale) announce(isStale ? `The table is out of date: ${why}` : "The table is kept up to date again");
  page.isStale = isStale;
  document.querySelector("main").classList.toggle("stale", isStale);
}

function saySources(fresh) {
  const down = [...fresh.querySelectorAll("#sources .down bdi")].map((each) => each.textContent).join(", ");
  if (page.down !== null && page.down !== down) announce(down ? `Sources that are down: ${down}` : "All sources are up again");
  page.down = down;
}

// Asks once, and again after a pause, unless somebody else has begun to ask meanwhile.
async function refresh() {
  clearTimeout(page.timer);
  const ask_ = ++page.asks;
  const began = performance.now();
  let chars = 0;
  try {
    const fresh = await ask();
    if (ask_ !== page.asks) return;
    chars = fresh.documentElement.textContent.length;
    takeOver(fresh);
  } catch (status) {
    if (ask_ !== page.asks) return;
    if (typeof status !== "number") throw status;
    setStale(true, "the exporter does not answer");
    sayWhatIsWrong(
      status ? `The exporter answers with status ${status}; the table shows its last answer.`
             : "The exporter does not answer; the table shows its last answer.",
    );
  }
  const pause = Math.max(EVERY_MS, (performance.now() - began) * PAUSE_FACTOR, (chars / CHARS_A_SECOND) * 1000);
  if (!page.isPaused) page.timer = setTimeout(whenSeen, pause);
}

function whenSeen() {
  if (document.hidden) document.addEventListener("visibilitychange", whenSeen, { once: true });
  else if (!page.isPaused) refresh();
}

// --- controls: they change the address, which the page is made of ------------------------------------------------------

async function go(address, change = "pushState") {
  history[change](null, "", address);
  await refresh();
}

function addressOfTools() {
  const given = new URLSearchParams(new FormData(byId("tools")));
  for (const [name, value] of [...given]) if (!value) given.delete(name);
  return `?${given}`;
}

let settled = 0;

function refilter(wait) {
  clearTimeout(settled);
  settled = setTimeout(async () => {
    await go(addressOfTools(), wait ? "replaceState" : "pushState");
    announce(byId("matches").textContent);
  }, wait);
}

document.addEventListener("input", (event) => event.target.id === "filter" && refilter(SETTLED_MS));
document.addEventListener("change", (event) => event.target.localName === "select" && refilter(0));
document.addEventListener("submit", (event) => {
  event.preventDefault();
  refilter(0);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("main a[href^='?']");
  const isPlain = !event.button && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  // a link to a device goes there as any link does
  if (!link || !isPlain || link.hash) return;
  event.preventDefault();
  const label = link.closest("tr") && link.classList.contains("fold") ? link.closest("tr").dataset.key : null;
  go(link.getAttribute("href")).then(() => {
    setControls();
    // the link that was followed is another one now, and the keyboard stays where it was
    if (label) document.querySelector(`tr[data-key="${CSS.escape(label)}"] .fold`)?.focus();
  });
});
window.addEventListener("popstate", () => refresh().then(setControls));
byId("pause").addEventListener("click", togglePause);

function togglePause() {
  page.isPaused = !page.isPaused;
  setText(byId("pause"), page.isPaused ? "Go on updating" : "Pause updates");
  announce(page.isPaused ? "Updates are paused" : "Updates go on");
  if (page.isPaused) clearTimeout(page.timer);
  else refresh();
}

// What is chosen is the page's again: a reader's own input is left alone while the page is only updated.
function setControls() {
  for (const each of document.querySelectorAll("#tools input, #tools select")) {
    each.value = each.localName === "input" ? each.getAttribute("value") || "" : each.querySelector("[selected]")?.value || "";
  }
}

// The table's head stays below the tools, which take a second line where there is less room or more to say.
const heights = new CSSStyleSheet();
document.adoptedStyleSheets.push(heights);
new ResizeObserver(([{ target }]) => {
  heights.replaceSync(`:root { --tools: ${target.getBoundingClientRect().height}px; }`);
}).observe(byId("tools"));
byId("pause").hidden = false;
byId("apply").hidden = true;
remember(document, Date.now());
refresh();
