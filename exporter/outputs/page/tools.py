"""What the script gives the reader: a filter, a button that stops it, and a line of what it does. Hidden without it."""

TOOLS = """<div id="tools" hidden>
<label for="filter">Filter <input id="filter" type="search" autocomplete="off" spellcheck="false"
 placeholder="pod, namespace, workload, model …"></label>
<label for="show">Show <select id="show"><option value="all">all</option><option value="held">held</option>
<option value="idle">held but idle</option><option value="free">free</option>
<option value="outside">used around Kubernetes</option><option value="unknown">unknown</option></select></label>
<button id="pause" type="button">Pause updates</button>
<span id="updated"></span>
<span id="status" role="status"></span>
</div>"""
MORE = '<button id="more" type="button" hidden>Show more</button>'
