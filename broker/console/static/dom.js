// Builds elements. Text is only ever set as text: nothing here, or elsewhere, parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element. `props` are attributes; functions become listeners; true sets an empty attribute. */
export function h(tag, props, ...children) {
  return built(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return built(document.createElementNS(SVG, tag), props, children);
}

function built(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "value") element.value = value;
    else if (name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) element.append(child);
    else element.append(...visible(String(child)));
  }
}

/** Characters that are not seen, or change the order of others: controls, formats, and the marks of directions. */
const UNSEEN = /([\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff])/;

/** Returns a text as nodes, in which a character that is not seen has its number instead. */
function visible(text) {
  return text.split(UNSEEN).filter(Boolean).map((part) => {
    if (!UNSEEN.test(part)) return part;
    const mark = document.createElement("span");
    mark.className = "unseen";
    mark.textContent = `U+${part.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    return mark;
  });
}

/** Replaces the children of an element, and keeps the focus on the element with the same key. */
export function fill(element, ...children) {
  const focused = document.activeElement;
  const key = element.contains(focused) && focused !== element ? keyOf(focused) : null;
  const nodes = document.createDocumentFragment();
  append(nodes, children);
  element.replaceChildren(nodes);
  if (key !== null) {
    for (const each of element.querySelectorAll("a, button, input, select, summary, [tabindex]")) {
      if (keyOf(each) === key) {
        each.focus({ preventScroll: true });
        break;
      }
    }
  }
}

function keyOf(element) {
  return element.id || element.getAttribute("href") || element.dataset.key || element.textContent;
}

export function toast(message) {
  const shown = document.getElementById("toast");
  shown.textContent = message;
  shown.classList.add("shown");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => shown.classList.remove("shown"), 6000);
}

export function empty(title, text) {
  return h("div", { class: "empty" }, h("b", null, title), text);
}

export function notice(text, kind = "") {
  return text ? h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null }, text) : null;
}

export function tag(text, kind = "") {
  return h("span", { class: `tag ${kind}` }, text);
}

export function stat(label, value, kind = "") {
  return h("div", { class: `stat ${kind}` }, h("b", null, value), h("span", null, label));
}

export function field(label, control, className = "") {
  return h("label", { class: className }, label, control);
}

/** Returns an input with a text; `change` gets the new one as `search`, and offset 0, when nothing was typed for a while. `props` are further attributes. */
export function searchInput(text, change, props) {
  let waiting = 0;
  const input = h("input", { id: "search", type: "search", placeholder: "Part of a name", autocomplete: "off", value: text, ...props, input: () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => input.isConnected && change({ search: input.value, offset: 0 }), 200); // the page may have been left
  } });
  return input;
}

export function select(id, options, value) {
  return h("select", { id, name: id }, options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
}

/** A button that copies a text to the clipboard. Without a secure connection browsers have none, and there is no button. */
export function copyButton(what, text) {
  if (!navigator.clipboard) return null;
  return h("button", { type: "button", class: "quiet copy", "data-key": `copy-${what}`, "aria-label": `Copy ${what}`, title: `Copy ${what}`, click: async () => {
    await navigator.clipboard.writeText(text).then(() => toast(`Copied ${what}.`), () => toast(`The browser does not let the page copy ${what}.`));
  } }, svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("rect", { x: 1.5, y: 1.5, width: 9, height: 9, rx: 1.5 }), svg("rect", { x: 5.5, y: 5.5, width: 9, height: 9, rx: 1.5 })));
}

export function closeDialogs() {
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
}

/** Shows a dialog with a title; returns it. It closes by Escape, and gives the focus back. */
export function dialog(title, ...content) {
  const opened = h("dialog", { "aria-label": title });
  const close = h("button", { type: "button", class: "quiet", click: () => opened.close(), "aria-label": "Close" }, "✕");
  append(opened, [h("div", { class: "head" }, h("h2", null, title), h("div", { class: "end" }, close)), ...content]);
  opened.addEventListener("close", () => opened.remove());
  document.body.append(opened);
  opened.showModal();
  return opened;
}
