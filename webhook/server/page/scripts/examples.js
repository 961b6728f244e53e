// The example that the input holds, until its workload is replaced.
let example = null;

function listExamples() {
  $("examples").querySelector("ul").append(...DATA.examples.map((listed, index) => {
    const button = make("button", "", make("b", "", listed.title), make("small", "", listed.about));
    button.type = "button";
    button.autofocus = index === 0;
    button.addEventListener("click", () => {
      $("examples").hidePopover();
      showExample(listed);
    });
    return make("li", "", button);
  }));
}

function showExample(listed, options) {
  const { title, about, ...input } = listed;
  showInput(input, options);
  markExample(listed);
}

function markExample(listed) {
  example = listed;
  $("example-note").hidden = $("example-mark").hidden = !listed;
  $("example-note").replaceChildren(...(listed ? [
    make("b", "", "An example. "), `${listed.title}. Paste your own workload in its place.`,
  ] : []));
}

// A workload that is pasted into an example takes the place of all of it.
function pasteOverExample({ clipboardData }) {
  if (example && /\bkind["']?\s*:/.test(clipboardData.getData("text"))) $("workload").select();
}

// Another workload does not get the namespace and the policies of the example. Small edits do.
function leaveExample() {
  const start = example?.workload.slice(0, example.workload.indexOf("name:"));
  if (!example || $("workload").value.startsWith(start)) return;
  for (const id of FIELDS) if ($(id).value === example[id]) $(id).value = "";
  showLabelsOfNamespace();
  const isOfExample = ({ name, text }) => example.policies.some(
    (policy) => policy.name === name && policy.text === text);
  setPolicies(editedPolicies().filter((policy) => !isOfExample(policy)));
  markExample(null);
}
