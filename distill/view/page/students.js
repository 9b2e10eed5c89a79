"use strict";
const SIZE = 20, FIELDS = ["right", "wrong", "domain", "words"], SVG = "http://www.w3.org/2000/svg";
let facts = { arms: {}, changes: [] }, asked = 0, drawn = "";

const wanted = () => new URLSearchParams(location.hash.slice(1));
const percent = (share) => `${(100 * share).toFixed(1)} %`;

function ask(change) {
  const parameters = wanted();
  for (const [name, what] of Object.entries(change)) what ? parameters.set(name, what) : parameters.delete(name);
  history.replaceState(null, "", `#${parameters}`);
  return search();
}

// --- findings and curves ------------------------------------------------------------------------------------------------

function drawFindings() {
  byId("findings").replaceChildren(...(facts.findings.length ? facts.findings : [{ stage: "", kind: "good", text: "No stage has a diagnosis yet." }]).map((one) =>
    make("li", {}, make("b", { class: { fault: "bad", good: "good" }[one.kind] ?? "" }, one.stage), " ", make("span", { dir: "auto" }, one.text))));
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, what] of Object.entries(attributes)) element.setAttribute(name, what);
  element.append(...children);
  return element;
}

function curve({ title, points, share }) {
  const [width, height] = [320, 110], steps = points.map(([step]) => step), values = points.map(([, what]) => what);
  const [first, last, high] = [steps[0], steps.at(-1), share ? 1 : Math.max(...values)];
  const number = share ? percent : (what) => what.toFixed(3);
  const line = points.map(([step, what]) => `${(width * (step - first) / (last - first || 1)).toFixed(1)},${(height * (1 - what / (high || 1))).toFixed(1)}`).join(" ");
  const text = `${title}: ${number(values[0])} at step ${first.toLocaleString("en")}, ${number(values.at(-1))} at step ${last.toLocaleString("en")}`;
  return make("figure", {}, draw("svg", { viewBox: `-2 -2 ${width + 4} ${height + 4}`, role: "img", "aria-label": text },
    draw("polyline", { points: `0,${height} ${width},${height}`, class: "axis" }), draw("polyline", { points: line, class: "curve" })),
    make("figcaption", {}, text));
}

function drawCurves() {
  byId("curves").replaceChildren(...(facts.curves.length ? facts.curves.map(curve) : [make("p", { class: "hint" }, "No stage has been trained yet.")]));
}

// --- replies --------------------------------------------------------------------------------------------------------------

function drawArms() {
  const names = Object.keys(facts.arms);
  byId("arms").replaceChildren(names.length ? table(names.map((name) => {
    const arm = facts.arms[name];
    return [name, `${percent(arm.accuracy)} [${arm.ci95.map((end) => (100 * end).toFixed(1)).join(", ")}] of ${arm.n.toLocaleString("en")}`, arm.limited_by || ""];
  })) : make("p", { class: "hint" }, "No student has been asked yet: distill eval asks them."));
  byId("changes").replaceChildren(...(facts.changes.length ? [make("h3", {}, "Against the other run"), table(facts.changes.map(change))] : []));
  for (const [id, choices] of [["right", names], ["wrong", names], ["domain", facts.domains.filter(Boolean)]])
    byId(id).replaceChildren(make("option", { value: "" }, "any"), ...choices.map((name) => make("option", { value: name }, name)));
  readAddress();
}

function readAddress() { for (const id of FIELDS) byId(id).value = wanted().get(id) || ""; }

function change({ arm, before, delta, ci95, n, only_first, only_second }) {
  const points = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)}`;
  const show = (count, what, right, wrong) => make("button", { type: "button", onclick: () => { ask({ right, wrong, offset: "" }); byId("right").value = right; byId("wrong").value = wrong; } }, `${count.toLocaleString("en")} ${what}`);
  return [arm, `${points(delta)} [${ci95.map(points).join(", ")}] points, ${counted(n, "question")} of both`,
    show(only_first, "better", arm, before), show(only_second, "worse", before, arm)];
}

function reply(name, one) {
  const said = one || { verdict: "not asked", answer: "", reasoning: "" };
  const notes = [said.truncated && "cut off", !said.truncated && said.well_formed === false && "no closed form", said.error_cause && said.error_cause.replaceAll("_", " ")];
  return make("div", { role: "group", "aria-label": name },
    make("h3", {}, name, " ", make("b", { class: said.verdict === "correct" ? "good" : "bad" }, said.verdict)),
    make("p", { dir: "auto" }, make("b", {}, said.answer || "no answer"), " ", make("small", {}, notes.filter(Boolean).join(", "))),
    said.reasoning ? make("div", { class: "rationale", dir: "auto" }, said.reasoning) : null);
}

function question(row) {
  return make("article", { tabindex: "-1" }, make("h3", { dir: "auto" }, row.question),
    make("div", { class: "pictures" }, ...Array.from({ length: row.images }, (_, index) => picture(row.sample_id, index))),
    make("p", {}, "gold ", make("b", {}, row.gold.join(" | ")), row.domain ? ` · ${row.domain}` : ""),
    make("div", { class: "replies" }, ...Object.keys(facts.arms).map((name) => reply(name, row.replies[name]))));
}

async function search() {
  const parameters = wanted(), offset = Number(parameters.get("offset") || 0), turn = ++asked;
  parameters.set("limit", SIZE);
  let found = { rows: [], total: 0 }, trouble = "";
  try { found = await call(`/api/replies?${parameters}`); } catch (problem) { trouble = problem.message; }
  if (turn !== asked) return;
  if (found.total && !found.rows.length) return ask({ offset: String(SIZE * Math.floor((found.total - 1) / SIZE)) });
  byId("problem").textContent = trouble;
  byId("total").textContent = trouble ? "" : counted(found.total, "question");
  byId("questions").replaceChildren(...found.rows.map(question));
  const last = Math.min(offset + found.rows.length, found.total);
  byId("range").textContent = found.total ? `${(offset + 1).toLocaleString("en")} to ${last.toLocaleString("en")}` : "none";
  byId("back").disabled = offset === 0;
  byId("next").disabled = last >= found.total;
}

async function look() {
  const now = await call("/api/students"), text = JSON.stringify(now);
  if (text === drawn) return;
  const replied = JSON.stringify([now.arms, now.changes]) !== JSON.stringify([facts.arms, facts.changes]) || !drawn;
  [drawn, facts] = [text, now];
  for (const part of ["ask", "total", "pages", "keys"]) byId(part).hidden = !Object.keys(facts.arms).length;
  document.title = `${facts.run} · students · distill view`;
  byId("run").textContent = `${facts.run}: students`;
  drawFindings();
  drawCurves();
  if (replied) { drawArms(); await search(); }
}

function move(by) {
  const articles = [...document.querySelectorAll("article")], at = articles.indexOf(document.activeElement.closest("article"));
  const next = articles[Math.max(0, Math.min(articles.length - 1, at + by))];
  if (next) { next.focus(); next.scrollIntoView({ block: "start" }); }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
  const action = { j: () => move(1), k: () => move(-1), "/": () => byId("right").focus() }[event.key];
  if (action) { event.preventDefault(); action(); }
});
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask({ ...Object.fromEntries(FIELDS.map((id) => [id, byId(id).value.trim()])), offset: "" });
});
byId("back").addEventListener("click", () => ask({ offset: String(Math.max(0, Number(wanted().get("offset") || 0) - SIZE)) }));
byId("next").addEventListener("click", () => ask({ offset: String(Number(wanted().get("offset") || 0) + SIZE) }));
window.addEventListener("hashchange", () => { readAddress(); search(); });
const watch = () => look().catch((problem) => { drawn = ""; byId("problem").textContent = `The page may be out of date: ${problem.message}`; });
watch();
setInterval(watch, 5000);  // curves grow while a stage trains
