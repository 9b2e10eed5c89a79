"""What a browser evaluates on the page of `distill view`."""

CHOSEN = "new URLSearchParams(location.hash.slice(1)).get('id')"
LOADED = f"{CHOSEN} !== null && !!document.querySelector('#trace .rationale')"
