// Links into the page.

/** openTarget opens what is closed around the target of the address, now and whenever it changes. */
export function openTarget(): void {
	const open = () => {
		const target = document.getElementById(decode(location.hash.slice(1)));
		if (!target) {
			return;
		}
		for (let around: Element | null = target; around; around = around.parentElement) {
			if (around instanceof HTMLDetailsElement) {
				around.open = true;
			}
		}
		if (target instanceof HTMLTableRowElement) {
			target.querySelector("details")?.setAttribute("open", "");
		}
		target.scrollIntoView();
	};
	addEventListener("hashchange", open);
	if (location.hash) {
		open();
	}
}

/** decode is the text of a fragment; one that is no encoding is taken as it is. */
function decode(fragment: string): string {
	try {
		return decodeURIComponent(fragment);
	} catch {
		return fragment;
	}
}
