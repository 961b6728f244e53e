function markStale() {
  if (!$("pods").childElementCount || $("results").classList.contains("stale")) return;
  $("results").classList.add("stale");
  setStatus("Result of an earlier input");
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  preview();
});
$("form").addEventListener("input", ({ target }) => {
  $("link-part").hidden = true;
  if (target !== $("token")) markStale();
});
$("workload").addEventListener("paste", pasteOverExample);
$("workload").addEventListener("input", leaveExample);
$("namespace").addEventListener("input", showLabelsOfNamespace);
$("copy-link").addEventListener("click", copyLink);
$("add-policy").addEventListener("click", addEmptyPolicy);
$("enter-token").addEventListener("click", showTokenField);
$("token").addEventListener("change", () => { if (!viewLoaded) loadView(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
  event.preventDefault();
  preview();
});
addEventListener("hashchange", () => { if (location.hash) openLink(); });
if (/Mac|iPhone|iPad/.test(navigator.platform)) $("modifier").textContent = "⌘";
listExamples();
loadView();
openLink();
