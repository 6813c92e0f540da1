// The configuration of a topic or a broker: sources, what differs from the default, and changes when the broker allows them.

import { fromAddress, toAddress } from "./address.js";
import { getJson, path } from "./api.js";
import { openChange } from "./change.js";
import { field, fill, h, tag } from "./dom.js";
import { meaning } from "./format.js";
import { table } from "./table.js";

const DEFAULTS = { search: "", differing: false };

export function configTab(kind, name) {
  const query = fromAddress(DEFAULTS);
  const list = h("div", { class: "card skeleton" });
  const search = h("input", { id: "config-search", type: "search", placeholder: "Part of a name", value: query.search, input: changed });
  const differing = h("input", { id: "differing", type: "checkbox", checked: query.differing, change: changed });
  let shown = null;

  async function refresh(signal) {
    shown = await getJson(path`/configs/${kind}/${name}`, {}, signal);
    draw();
  }

  function changed() {
    toAddress({ search: search.value, differing: differing.checked }, DEFAULTS);
    draw();
  }

  function draw() {
    if (!shown) return;
    list.className = "card";
    const rows = shown.configs.filter((row) => row.name.includes(search.value.trim()) && (!differing.checked || row.differs));
    fill(list, table(`${rows.length} settings; those that differ from the default come first.`, [
      { title: "Setting", className: "setting", of: (row) => [h("div", { class: "mono" }, row.name), h("div", { class: "muted small" }, row.doc)] },
      { title: "Value", className: "value", of: (row) => (row.is_sensitive ? tag("hidden") : row.value === "" || row.value === null ? h("span", { class: "muted" }, "none") : [row.differs ? h("b", null, row.value) : row.value, meant(row.name, row.value)]) },
      { title: "Source", of: (row) => tag(row.source, row.differs ? "accent" : "") },
      { title: "Default", className: "value", of: (row) => (row.differs && !row.is_sensitive ? [row.default || "none", meant(row.name, row.default)] : "") },
      { title: "", of: (row) => (shown.is_writing_enabled && !row.is_read_only ? h("button", { type: "button", "data-key": `change-${row.name}`, "aria-label": `Change ${row.name}`, click: () => change(row) }, "Change") : null) },
    ], rows, { none: ["No setting matches", "Search for another part of the name."] }));
  }

  function change(row) {
    const value = h("input", { id: "new-value", type: row.is_sensitive ? "password" : "text", value: row.value ?? "", autocomplete: "off" });
    const removes = h("input", { id: "remove-value", type: "checkbox", change: () => (value.disabled = removes.checked) });
    openChange(`Change ${row.name}`, () => path`/configs/${kind}/${name}`, {
      fields: [h("p", { class: "muted wide" }, row.doc), field("Value", value, "wide"), h("label", { class: "line" }, removes, "Remove the value, so that the next source is in effect"),
        h("div", { class: "wide" }, table("Values by source, the first is in effect", [{ title: "Source", of: (each) => each.source }, { title: "Setting", of: (each) => each.name }, { title: "Value", className: "value", of: (each) => each.value ?? "none" }], row.sources))],
      body: () => ({ changes: { [row.name]: removes.checked ? null : value.value } }),
      verb: "Save",
      done: refresh,
    });
  }

  return {
    root: h("div", null, h("div", { class: "form" }, field("Search", search, "wide"), h("label", { class: "line" }, differing, "Only what differs from the default")), list),
    isRead: () => shown !== null,
    refresh: (signal) => (shown ? undefined : refresh(signal)),
  };
}

function meant(name, value) {
  const text = meaning(name, value);
  return text ? h("div", { class: "muted small" }, text) : null;
}
