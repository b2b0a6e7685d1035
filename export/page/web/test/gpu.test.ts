import assert from "node:assert/strict";
import { test } from "node:test";
import type { Curve } from "../src/data";
import { areApart, isGPU, namedCurves, scaleOf, strips } from "../src/timeline/gpu";
import { endPlaces } from "../src/timeline/labels";

const curve = (key: string, values: (number | null)[], more: Partial<Curve> = {}): Curve => ({
	key,
	label: key,
	unit: "bytes",
	shown: true,
	values,
	...more,
});

test("host and GPU memory share an axis as long as both are readable along it", () => {
	for (const [host, gpu, want] of [
		[100, 400, false],
		[100, 401, true],
		[401, 100, true],
		[100, 0, false],
		[0, 100, false],
	] as const) {
		const series = [curve("rss", [null, host]), curve("gpu_used", [gpu, null])];
		assert.equal(areApart(series), want, `${host} and ${gpu}`);
	}
});

test("what is not shown, or is no size, does not move an axis", () => {
	const series = [curve("rss", [100]), curve("workers", [1e9], { unit: "count" }), curve("pinned", [1e9], { shown: false })];
	assert.equal(areApart([...series, curve("gpu_used", [200]), curve("gpu_driver", [1e9], { shown: false })]), false);
	assert.equal(areApart(series), false);
	assert.equal(areApart([]), false);
});

test("pinned memory is the host's, and lies along its axis", () => {
	const [pinned, used, workers] = [curve("pinned", []), curve("gpu_used", []), curve("workers", [], { unit: "count" })];
	assert.deepEqual([pinned, used].map(isGPU), [false, true]);
	assert.deepEqual(
		[pinned, used, workers].map((one) => scaleOf(one, true)),
		["y", "d", "n"],
	);
	assert.deepEqual(
		[pinned, used, workers].map((one) => scaleOf(one, false)),
		["y", "y", "n"],
	);
});

test("curves are named in the picture where there are those of both memories", () => {
	const series = [curve("rss", []), curve("gpu_used", [], { shown: false }), curve("gpu_reserved", [])];
	assert.deepEqual(namedCurves(series), [
		{ index: 0, text: "RSS" },
		{ index: 2, text: "GPU memory" },
	]);
	assert.deepEqual(namedCurves(series.slice(0, 2)), []);
	assert.deepEqual(namedCurves(series.slice(1)), []);
});

test("a second strip of phases is there where GPU memory is judged", () => {
	const data = { time_s: [], series: [], phases: null, marks: null, spikes: null, probing: null, changes: null };
	assert.equal(strips(data), 1);
	assert.equal(strips({ ...data, gpu_phases: [] }), 1);
	assert.equal(strips({ ...data, gpu_phases: [{ from_s: 0, to_s: 1, kind: "growth", label: "GPU: growth" }] }), 2);
});

test("names of curves never lie on each other, and stay beside their own", () => {
	for (let first = 0; first < 60; first++) {
		for (let second = 0; second < 60; second++) {
			const places = endPlaces([first, second], 10);
			assert.ok(Math.abs(places[0] - places[1]) >= 10, `${first} and ${second}: ${places}`);
			assert.deepEqual([Math.abs(places[0] - first), Math.abs(places[1] - second)], [10, 10]);
		}
	}
});
