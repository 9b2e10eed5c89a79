"use strict";
// Images of a question. A click opens one; buttons and keys change its size in steps, and dragging moves it.
const STEPS = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8];  // of the width at which it opens
const AS_OPENED = STEPS.indexOf(1), DRAGGED_PIXELS = 4;

function picture(sample, index) {
  const name = `Image ${index + 1}`;
  const image = make("img", { src: `/picture/${encodeURIComponent(sample)}/${index}`, alt: `${name} of the question`, draggable: "false" });
  const view = make("button", { type: "button", "aria-label": `${name}: full size`, "aria-expanded": "false" }, image);
  const size = make("output", { "aria-label": `${name}: size` });
  const tools = make("p", { class: "zoom", hidden: "hidden" },
    make("button", { type: "button", "aria-label": `${name}: smaller, key -`, onclick: () => whole.step(-1) }, "\u2212"), " ",
    make("button", { type: "button", "aria-label": `${name}: larger, key +`, onclick: () => whole.step(1) }, "+"), " ", size);
  const whole = make("div", { class: "picture" }, view, tools);
  let at = AS_OPENED, opened = 0, grip = null, dragged = false;

  whole.open = (wanted) => {
    view.setAttribute("aria-expanded", wanted);
    whole.classList.toggle("open", wanted);
    tools.hidden = !wanted;
    [at, image.style.width, image.style.minWidth] = [AS_OPENED, "", ""];
    opened = image.getBoundingClientRect().width;
    tell();
  };
  whole.step = (by) => {
    const before = image.clientWidth, middle = [view.scrollLeft + view.clientWidth / 2, view.scrollTop + view.clientHeight / 2];
    at = Math.max(0, Math.min(STEPS.length - 1, at + by));
    [image.style.width, image.style.minWidth] = [`${opened * STEPS[at]}px`, "0"];
    const ratio = image.clientWidth / before;
    view.scrollTo(middle[0] * ratio - view.clientWidth / 2, middle[1] * ratio - view.clientHeight / 2);
    tell();
  };
  function tell() { size.textContent = `${Math.round(100 * opened * STEPS[at] / image.naturalWidth)} %`; }

  view.addEventListener("click", (event) => {
    if (!dragged || !event.detail) whole.open(!whole.classList.contains("open"));  // no detail: by a key
    dragged = false;
  });
  view.addEventListener("pointerdown", (event) => {
    dragged = false;
    if (event.button || event.pointerType === "touch" || !whole.classList.contains("open")) return;  // fingers scroll by themselves
    grip = { x: event.clientX + view.scrollLeft, y: event.clientY + view.scrollTop, from: [event.clientX, event.clientY] };
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    if (!grip) return;
    dragged = dragged || Math.hypot(event.clientX - grip.from[0], event.clientY - grip.from[1]) > DRAGGED_PIXELS;
    if (dragged) view.scrollTo(grip.x - event.clientX, grip.y - event.clientY);
  });
  for (const end of ["pointerup", "pointercancel"]) view.addEventListener(end, () => { grip = null; });
  image.addEventListener("load", () => { if (image.naturalWidth < 200) image.classList.add("small"); });
  image.addEventListener("error", () => whole.replaceChildren("the image cannot be read"));
  return whole;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const whole = document.activeElement.closest(".picture.open") || document.querySelector(".picture.open");
  const action = whole && { "+": () => whole.step(1), "=": () => whole.step(1), "-": () => whole.step(-1), Escape: () => whole.open(false) }[event.key];
  if (action) { event.preventDefault(); action(); }
});
