// The subjects of the schema registry, and the versions of one.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson, path } from "./api.js";
import { copyButton, field, fill, h, notice, searchInput } from "./dom.js";
import { plural } from "./format.js";
import { pager, table } from "./table.js";

const LIMIT = 50;
const DEFAULTS = { search: "", offset: 0 };

export function subjectsPage() {
  const query = fromAddress(DEFAULTS);
  const list = h("div", { class: "card skeleton" });
  const problems = h("div", null);
  const search = searchInput(query.search, change);

  function change(parts) {
    Object.assign(query, parts);
    toAddress(query, DEFAULTS);
    draw().then(() => fill(problems), (error) => fill(problems, notice(error.message, "bad")));
  }

  async function draw(signal) {
    const asked = JSON.stringify(query);
    const page = await getJson("/subjects", { ...query, limit: LIMIT }, signal);
    if (asked !== JSON.stringify(query)) return;
    list.className = "card";
    fill(list, table(plural(page.total, "subject"), [{ title: "Subject", className: "name", of: (row) => h("a", { href: link`schemas/${row}` }, row) }], page.subjects,
      { none: ["No subjects", "Subjects appear when a producer registers a schema."] }),
    page.total > LIMIT ? pager(query.offset, LIMIT, page.total, (offset) => change({ offset })) : null);
  }

  return {
    title: "Schemas",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Schemas")), h("div", { class: "form" }, field("Search", search, "wide")), problems, list),
    refresh: draw,
  };
}

export function subjectPage([name]) {
  const topic = h("p", { class: "muted" });
  const versions = h("div", null, h("div", { class: "skeleton" }));
  let isRead = false;
  return {
    title: name,
    root: h("div", null, h("div", { class: "head" }, h("div", { class: "crumbs" }, h("a", { href: "#/schemas" }, "Schemas")), h("h1", null, name), copyButton("the name", name)), topic, versions),
    isRead: () => isRead,
    async refresh(signal) {
      if (isRead) return;
      const found = await getJson(path`/subjects/${name}`, {}, signal);
      isRead = true;
      fill(topic, found.topic ? ["Schemas of the topic ", h("a", { href: link`topics/${found.topic}` }, found.topic), ". "] : null, found.version_count > found.versions.length ? `${plural(found.version_count, "version")}, of which the newest ${found.versions.length} are shown.` : plural(found.version_count, "version"));
      fill(versions, found.versions.map((each) => h("section", { class: "card" },
        h("h2", null, `Version ${each.version} `, h("span", { class: "muted small" }, `${each.kind}, schema ${each.id}`), " ", copyButton(`version ${each.version}`, each.text)),
        h("pre", { class: "whole", tabindex: 0 }, each.text))));
    },
  };
}
