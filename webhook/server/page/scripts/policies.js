// The policies in force by name, and those that the user has added, each with its editor.
const policies = new Map();
const NEW_POLICY = `apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: NAME}
spec:
  namespaceSelector: {}
  remedies:
    postInitSleep: {}
`;

function showPolicies(found) {
  const edited = editedPolicies();
  policies.clear();
  for (const { name, action, priority, document } of found) {
    policies.set(name, makePolicy(name, { action, priority, inForce: `${yaml(document)}\n` }));
  }
  setPolicies(edited);
}

// Replaces all edits. A policy in force that is not among them gets its own text again.
function setPolicies(edited) {
  for (const [name, policy] of policies) {
    if (!policy.inForce) policies.delete(name);
    revert(policy);
    policy.view.open = false;
  }
  for (const { name, text } of edited) addPolicy(name, text);
  listPolicies();
}

function addPolicy(name, text) {
  if (!policies.has(name)) policies.set(name, makePolicy(name, { inForce: "" }));
  const policy = policies.get(name);
  policy.area.value = text;
  policy.view.open = true;
  showState(policy);
  return policy;
}

function listPolicies() {
  // Those that the user has added come first, like the newest entry of a list.
  const order = [...policies.values()].sort((a, b) => Boolean(a.inForce) - Boolean(b.inForce));
  $("policies").replaceChildren(...order.map(({ view }) => view));
}

function makePolicy(name, { action, priority, inForce }) {
  const view = fillIn("policy").firstElementChild;
  const area = view.querySelector("textarea");
  const policy = { name, action, priority, inForce, view, area };
  view.querySelector(".name").textContent = printable(name);
  area.value = inForce;
  area.setAttribute("aria-label", printable(`Policy ${name}`));
  area.addEventListener("input", () => showState(policy));
  const button = view.querySelector("button");
  button.textContent = inForce ? "Revert" : "Remove";
  button.addEventListener("click", () => {
    if (inForce) {
      revert(policy);
      area.focus();
    } else {
      policies.delete(name);
      listPolicies();
      $("add-policy").focus();
    }
    markStale();
  });
  showState(policy);
  return policy;
}

function revert(policy) {
  policy.area.value = policy.inForce;
  showState(policy);
}

function isEdited({ area, inForce }) {
  return area.value.trim() !== inForce.trim() && Boolean(area.value.trim());
}

function showState(policy) {
  const { view, inForce, action, priority } = policy;
  const edited = isEdited(policy);
  view.classList.toggle("edited", edited);
  const states = [];
  if (edited) {
    states.push(chip("edited", inForce ? "Edited" : "New"));
  } else if (!policy.area.value.trim()) {
    // An empty text is no edit, because a preview without the policy cannot be asked for.
    const effect = inForce ? "the policy in force counts" : "no policy is added";
    states.push(chip("edited", "Empty"), make("span", "muted", effect));
  } else {
    if (priority) states.push(make("span", "muted", `priority ${priority}`));
    if (action === "Audit") states.push(chip("audit"));
  }
  view.querySelector(".states").replaceChildren(...states);
  const button = view.querySelector("button");
  button.disabled = Boolean(inForce) && policy.area.value === inForce;
}

function editedPolicies() {
  return editedAreas().map(({ area, name }) => ({ name, text: area.value }));
}

function editedAreas() {
  return [...policies.values()].filter(isEdited).map(({ area, name }) => ({ area, name }));
}

function addEmptyPolicy() {
  let number = 1;
  while (policies.has(`new-policy-${number}`)) number += 1;
  const name = `new-policy-${number}`;
  const { area } = addPolicy(name, NEW_POLICY.replace("NAME", name));
  listPolicies();
  area.focus();
  markStale();
}
