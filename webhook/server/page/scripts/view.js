// The server's view of the cluster: the policies in force, and the namespaces to choose from.
let viewLoaded = false;
const labelsByNamespace = new Map();

async function loadView() {
  let view;
  try {
    view = await ask("view");
  } catch (error) {
    $("enter-token").hidden = ![401, 403].includes(error.status);
    $("policies-status").textContent = error.status === 401 ? "Shown with a token"
      : error.status === 403 ? "The token does not allow GET /view"
      : printable(`Not known: ${error.message}`);
    return;
  }
  viewLoaded = true;
  $("enter-token").hidden = true;
  showPolicies(view.policies);
  const hidden = view.policyCount - view.policies.length;
  $("policies-status").textContent =
    hidden ? `${view.policyCount}, of which ${hidden} are not shown` : `${view.policyCount}`;
  showNamespaces(view.namespaces);
}

function showNamespaces(namespaces) {
  labelsByNamespace.clear();
  for (const { name, labels } of namespaces) {
    const pairs = Object.entries(labels).filter(([key]) => key !== "kubernetes.io/metadata.name");
    labelsByNamespace.set(name, pairs.map(([key, value]) => `${key}=${value}`).join(", "));
  }
  $("namespaces").replaceChildren(...[...labelsByNamespace].map(([name, labels]) => {
    const option = make("option", "", labels);
    option.value = name;
    return option;
  }));
  showLabelsOfNamespace();
}

function showLabelsOfNamespace() {
  const labels = labelsByNamespace.get($("namespace").value.trim());
  $("labels").placeholder = labels === undefined ? "key=value, key=value" : labels || "no labels";
}
