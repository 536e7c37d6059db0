// Makes a part of the page the same as that of a newer page, and touches only what differs: what is selected, open or
// in focus stays so. Children with a data-key or an id are found again by it, wherever they stand now.

// What belongs to the reader, or to the script: which details are open, what a field holds, and these elements.
const OURS = new Set(["open", "hidden", "value"]);
const OWN = "#updated, #status, #pause, #apply, .spark path";

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset?.key || node.id || "" : "");

function isAlike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function isOurs(element, name) {
  if (name === "hidden") return element.matches(OWN);
  if (name === "value") return element.localName === "input";
  return OURS.has(name);
}

function morphAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !(name === "open" || isOurs(old, name) && name !== "value")) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isOurs(old, name) && name !== "class") old.removeAttribute(name);
  if (!fresh.hasAttribute("class") && old.localName !== "main") old.removeAttribute("class");
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  // most of a large page is the same, which the browser knows sooner than a script
  if (old.isEqualNode(fresh) || old.matches(OWN)) return;
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  let keyed = null; // made where the order differs, which is seldom
  let place = old.firstChild;
  let next = fresh.firstChild;
  while (next) {
    const wanted = next;
    next = next.nextSibling;
    if (!place || !isAlike(place, wanted)) {
      keyed ??= new Map([...old.children].filter(keyOf).map((each) => [keyOf(each), each]));
      const moved = keyed.get(keyOf(wanted));
      if (moved && isAlike(moved, wanted)) {
        old.insertBefore(moved, place);
        morph(moved, wanted);
      } else {
        old.insertBefore(document.importNode(wanted, true), place);
      }
      continue;
    }
    const kept = place;
    place = place.nextSibling;
    morph(kept, wanted);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}
