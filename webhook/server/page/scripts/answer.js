function showAnswer(answer, atOpening) {
  const { pods } = answer;
  $("results").classList.remove("stale");
  $("empty").hidden = true;
  $("pods").replaceChildren(...pods.map((pod, index) => podView(pod, index, pods.length)),
    ...withoutPod("Unreadable objects", answer.unreadable),
    ...withoutPod("Objects without a pod", otherObjects(answer.passedOver)));
  const changed = pods.filter((pod) => pod.patch.length).length;
  const warnings = pods.reduce((sum, pod) => sum + pod.warnings.length, 0);
  const unreadable = answer.unreadable ?? [];
  const passedOver = otherObjects(answer.passedOver);
  for (const { area, name } of unreadable.map(({ line }) => placeOf(line))) {
    if (name) area.setAttribute("aria-invalid", "true");
  }
  setStatus([count(pods.length, "pod"), `${changed} changed`, count(warnings, "warning"),
    ...(unreadable.length ? [count(unreadable.length, "unreadable object")] : []),
    ...(passedOver.length ? [`${count(passedOver.length, "object")} without a pod`] : []),
  ].join(", "));
  if (atOpening) return;
  const { top } = $("results").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) $("results").scrollIntoView();
}

// The objects without a pod, except the edited policies, which are no part of the workload.
function otherObjects(objects = []) {
  return objects.filter(({ kind, line }) => kind !== "SettlePolicy" || !placeOf(line).name);
}

function withoutPod(title, objects) {
  if (!objects?.length) return [];
  const list = make("ul", "", ...objects.map(({ kind, name, line, message }) => {
    const subject = kind ? [make("code", "", `${kind}/${name || "(unnamed)"}`), ": "] : [];
    const instead = policies.get(placeOf(line).name)?.inForce ? "; the policy in force counts instead" : "";
    return make("li", "", lineButton(line), " ", ...subject, message, instead);
  }));
  return [make("div", "note warns without", make("p", "label", title), list)];
}

function setStatus(text) { $("status").textContent = text; }

const CHIPS = {
  changed: "Changed", warns: "Warning", audit: "Audit only", same: "Unchanged", edited: "Edited",
};
const chip = (state, text = CHIPS[state]) => make("span", `chip ${state}`, text);

function podView(pod, index, total) {
  const view = fillIn("pod").firstElementChild;
  const states = [chip(pod.patch.length ? "changed" : "same")];
  if (pod.warnings.length) states.push(chip("warns", count(pod.warnings.length, "warning")));
  view.querySelector("h3").textContent = printable(`${pod.kind}/${pod.name || "(unnamed)"}`);
  view.querySelector("summary").append(make("span", "states", ...states));
  let filled = false;
  const fill = () => {
    if (filled || !view.open) return;
    filled = true;
    fillBody(view, pod, index);
  };
  view.addEventListener("toggle", fill);
  view.open = total < 5;
  fill();
  return view;
}

function fillBody(view, pod, index) {
  const facts = { Namespace: pod.namespace, Policies: pod.policies.join(", ") || "none" };
  if (pod.path) facts.Template = pod.path;
  for (const [name, value] of Object.entries(facts)) {
    view.querySelector(".facts").append(
      make("div", "", make("dt", "", name), make("dd", "mono", value)));
  }
  view.querySelector(".decision").textContent = printable(pod.summary);
  view.querySelector(".notes").hidden = !pod.notes.length;
  view.querySelector(".notes").append(...pod.notes.map((text) => make("li", "", ...withCode(text))));
  view.querySelector(".matches").append(...matchViews(pod));
  view.querySelector(".warns").hidden = !pod.warnings.length;
  view.querySelector(".warnings").append(
    ...pod.warnings.map((text) => make("li", "", ...withCode(text))));
  view.querySelector(".reasons").append(...reasonViews(pod));
  fillTabs(view, pod, index);
}
