"use strict";
// Labels of traces, and what they say of the judge.
const AGREEMENT_MS = 500, unsaved = [];  // ids of traces whose label the server did not take
const verdictsSeen = new Set();  // ids of traces that were open with their verdict: a label of one is never blind
const TOO_EARLY = "A key was pressed before this trace was shown, so it labels nothing. Press it again.";
let saving = Promise.resolve(), waitingLabels = 0, agreeing = null, compared = 0, early = null;

// The next trace is shown at once. A label is shown when the server has it; a trace whose label it does not take comes back.
function setLabel(label, on) {
  if (state.labelling_off) return;
  early = shown ? null : wanted().get("id");
  if (!shown) return;
  if (byId("problem").textContent === TOO_EARLY) tell("");
  const labelled = shown, note = byId("note") ? byId("note").value : "";
  const values = { trace: labelled.id, label, note, blind: blind() && !verdictsSeen.has(labelled.id) };
  const save = () => saveLabel(values).finally(() => { waitingLabels -= 1; });
  labelled.pending = label;
  waitingLabels += 1;
  saving = saving.then(save, save);  // one after the other, in their order
  if (on && !blind()) move(1);
}

async function saveLabel(values) {
  try {
    await call("/api/labels", values);
  } catch (problem) {
    if (!unsaved.includes(values.trace)) unsaved.push(values.trace);
    await ask({ id: unsaved[0] });
    byId("problem").textContent = `${counted(unsaved.length, "label")} not stored, the first of this trace: ${problem.message}`;
    return;
  }
  given.set(values.trace, (given.get(values.trace) || 0) + 1);
  if (drafts.get(`note ${values.trace}`) === values.note) drafts.delete(`note ${values.trace}`);
  if (ahead.id === values.trace) ahead = { id: null };
  if (unsaved.includes(values.trace)) unsaved.splice(unsaved.indexOf(values.trace), 1);
  const row = found.rows.find((one) => one.id === values.trace);
  if (row) row.label = values.label;
  drawRows();
  if (shown && shown.id === values.trace) {
    shown.label = { label: values.label, note: values.note };
    drawTrace();
  }
  clearTimeout(agreeing);
  agreeing = setTimeout(drawAgreement, AGREEMENT_MS);
}

async function drawAgreement() {
  const turn = ++compared, judged = await call("/api/agreement");
  if (turn !== compared) return;
  const rate = (name, one) => `${name} ${one.of ? `${(100 * one.share).toFixed(1)} % [${one.ci95.map((end) => (100 * end).toFixed(1)).join(", ")}]` : "not known"} (${one.n} of ${one.of})`;
  byId("agreement").textContent = judged.labels === 0 ? "No labels yet." :
    `Your ${counted(judged.labels, "label")} against the judge: ${rate("false accepts", judged.false_accept)}, ${rate("false rejects", judged.false_reject)}, ` +
    `${rate("undecided on right answers", judged.undecided)}; ${judged.unsure} unsure, ${judged.blind} blind.` +
    (judged.labels < judged.enough ? ` Label ${judged.enough} or more before you trust these rates.` : "");
}

// A field that keeps what a person writes until it is sent, whatever the page draws again.
function draft(field, of, text) {
  const key = `${field.name} ${of}`;
  field.value = drafts.get(key) ?? text;
  field.addEventListener("input", () => drafts.set(key, field.value));
  return field;
}

function labelButtons() {
  const own = shown.label && shown.label.label;
  const note = draft(make("textarea", { id: "note", name: "note", "aria-label": "Note", placeholder: "note (n)" }), shown.id, (shown.label && shown.label.note) || "");
  note.disabled = Boolean(state.labelling_off);
  return make("div", { class: "labels" }, ...state.labels.map((label) => make("button",
    { type: "button", "data-label": label, disabled: Boolean(state.labelling_off), "aria-pressed": own === label, onclick: () => setLabel(label, false) }, `${label} (${label[0]})`)), note);
}

addEventListener("beforeunload", (event) => { if (waitingLabels) event.preventDefault(); });  // the browser asks first
