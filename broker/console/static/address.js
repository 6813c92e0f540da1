// What a page keeps in its address, so that Back, a reload and a copied link show it again.

/** Returns the parameters of the address as an object like `defaults`, whose values they replace. */
export function fromAddress(defaults) {
  const given = new URLSearchParams(location.hash.split("?")[1]);
  const state = { ...defaults };
  for (const [name, value] of Object.entries(defaults)) {
    const text = given.get(name);
    if (text === null) continue;
    if (typeof value === "boolean") state[name] = text === "true";
    else if (typeof value !== "number") state[name] = text;
    else if (/^\d{1,9}$/.test(text)) state[name] = Number(text);
  }
  return state;
}

/** Writes what differs from `defaults` into the address of the page, which stays shown. */
export function toAddress(state, defaults) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(defaults)) if (state[name] !== value) query.set(name, state[name]);
  const text = query.toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/overview"}${text ? `?${text}` : ""}`);
}

/** Returns the address of a page: link`topics/${name}`. */
export function link(parts, ...names) {
  return `#/${parts.reduce((text, part, at) => text + encodeURIComponent(names[at - 1]) + part)}`;
}
