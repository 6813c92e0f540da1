// A table whose rows become cards on narrow screens.

import { empty, h } from "./dom.js";

/**
 * columns: [{ title, of(row) -> node or text, number, sort, className }]. `sorted` is { key, order, by(key) } for columns with
 * `sort`. `onRow(row)` opens a row by click; give the row a link or button as well, for the keyboard.
 */
export function table(caption, columns, rows, { sorted, onRow, none } = {}) {
  if (!rows.length && none) return none instanceof Node ? none : empty(none[0], none[1]);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "rows" },
      h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((column) => heading(column, sorted)))),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            onRow ? { class: "clickable", click: (event) => event.target.closest("a, button, input") || onRow(row) } : null,
            columns.map((column) =>
              h("td", { class: `${column.number ? "number" : ""} ${column.className ?? ""}`, "data-label": column.title }, column.of(row)),
            ),
          ),
        ),
      ),
    ),
  );
}

function heading(column, sorted) {
  const isSorted = sorted && column.sort && sorted.key === column.sort;
  const aria = isSorted ? sorted.order : null;
  const title =
    sorted && column.sort
      ? h("button", { type: "button", "data-key": `sort-${column.sort}`, click: () => sorted.by(column.sort) }, column.title, isSorted ? (sorted.order === "ascending" ? " ▲" : " ▼") : "")
      : column.title;
  return h("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": aria }, title);
}

/** Sorts rows on the page: returns a function that draws again when a heading is used. */
export function sorting(first, draw, order = "ascending") {
  const state = {
    key: first,
    order,
    by(key) {
      state.order = state.key === key && state.order === "ascending" ? "descending" : "ascending";
      state.key = key;
      draw();
    },
  };
  return state;
}

export function pager(offset, limit, total, go) {
  const last = Math.min(offset + limit, total);
  return h(
    "div",
    { class: "pager" },
    h("span", { class: "muted small" }, total ? `${offset + 1} to ${last} of ${total.toLocaleString("en-US")}` : ""),
    h("button", { type: "button", "data-key": "before", disabled: offset === 0, click: () => go(Math.max(0, offset - limit)) }, "Previous"),
    h("button", { type: "button", "data-key": "next", disabled: last >= total, click: () => go(offset + limit) }, "Next"),
  );
}

/** Saves text as a file of the browser. */
export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Rows of objects as CSV (RFC 4180). Texts that a spreadsheet would run as a formula get an apostrophe. */
export function csv(columns, rows) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows.map((row) => columns.map((column) => row[column]))].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
