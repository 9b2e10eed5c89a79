"use strict";
// Every text of the run is set as text, never as markup.
const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null).map((child) => typeof child === "number" ? `${child}` : child));
  return element;
}

async function call(path, body) {
  const options = body ? { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {};
  const response = await fetch(path, options);
  const values = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(values.error || `The server failed (${response.status}). The terminal of distill view shows the error.`);
  return values;
}

function counted(count, word) { return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`; }

function value(what) {
  if (what === null || what === undefined) return "not measured";
  if (typeof what === "boolean") return what ? "yes" : "no";
  if (typeof what === "number") return what.toLocaleString("en", Number.isInteger(what) ? {} : { maximumSignificantDigits: 3 });
  return typeof what === "object" ? JSON.stringify(what) : String(what);
}

function table(rows) { return make("table", {}, ...rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell))))); }
