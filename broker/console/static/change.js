// Changes: what one would do is shown first, and only what was shown is done.

import { mayWrite, sendJson } from "./api.js";
import { dialog, fill, h, notice, toast } from "./dom.js";
import { table } from "./table.js";

/**
 * Opens a dialog with the fields of a change. `body()` returns what they describe, for the resource at `address()`; it throws if they
 * describe nothing. The broker returns a preview with a token; only the request with that token makes the change. `done()` shows it.
 */
export function openChange(title, address, { fields = [], body = () => ({}), verb, done }) {
  const result = h("div", { id: "preview", role: "status" });
  const apply = h("button", { type: "button", class: "danger", id: "apply", disabled: true, click: make }, verb);
  let previewed = null;

  function clear() {
    previewed = null;
    apply.disabled = true;
    fill(result);
  }

  async function preview() {
    clear();
    try {
      const wanted = body();
      const change = await sendJson("POST", address(), { ...wanted, confirm: "" });
      previewed = { ...wanted, confirm: change.confirm };
      apply.disabled = false;
      fill(result, change.warnings.map((each) => notice(each)), rowsOf(change, "Preview: nothing was changed yet"));
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  }

  async function make() {
    apply.disabled = true; // a second click must not make it twice
    try {
      const change = await sendJson("POST", address(), previewed);
      const failed = change.rows.filter((row) => row.problem).length;
      if (failed) fill(result, notice(`Not changed: ${failed} of ${change.rows.length}.`, "bad"), rowsOf(change, "What became of the change"));
      else {
        opened.close();
        toast(`${title}: done.`);
      }
      await done?.();
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  }

  const opened = dialog(title,
    h("form", { class: "form", submit: (event) => { event.preventDefault(); preview(); }, input: clear, change: clear },
      fields, h("button", { type: "submit", class: "primary", id: "show-preview" }, "Preview"), apply),
    result);
  if (!fields.length) preview();
}

function rowsOf(change, caption) {
  const columns = [
    { title: "What", className: "name", of: (row) => row.subject },
    { title: "Before", className: "value", of: (row) => row.before ?? h("span", { class: "form-null" }, "does not exist") },
    { title: "After", className: "value", of: (row) => h("b", null, row.after ?? "deleted") },
  ];
  if (change.rows.some((row) => row.problem)) columns.push({ title: "Problem", of: (row) => row.problem });
  return table(caption, columns, change.rows);
}

/** Shows buttons in `place` if the broker lets the console change anything: [[id, title, click]]. */
export async function showActions(place, actions) {
  if (!(await mayWrite())) return;
  fill(place, actions.map(([id, title, click]) => h("button", { type: "button", id, click }, title)));
}
