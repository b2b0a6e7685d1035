import assert from "node:assert/strict";
import { test } from "node:test";
import { hueOf } from "../src/colors";
import type { FlameData } from "../src/data";
import { componentsOf, decode, narrowestDrawn, path, search, walk } from "../src/flame/tree";
import { compareKeys } from "../src/tables";

const data: FlameData = {
	names: ["all", "main", "load", "Resize", "__proto__"],
	components: ["train.py", "pil", "constructor"],
	root: [
		0,
		1,
		100,
		10,
		[
			[
				1,
				0,
				90,
				9,
				[
					[2, 0, 10, 4],
					[3, 1, 70, 5, [[3, 1, 60, 1]]],
				],
			],
			[4, 2, 10, 1],
		],
	],
};

test("frames have names, components, sums and parents, the largest first", () => {
	const root = decode(data);
	const seen: string[] = [];
	walk(root, (frame) =>
		seen.push(`${path(frame).map(({ name }) => name)}=${frame.resident}/${frame.objects} ${frame.component}`),
	);
	assert.deepEqual(seen, [
		"all=100/10 pil",
		"all,main=90/9 train.py",
		"all,main,Resize=70/5 pil",
		"all,main,Resize,Resize=60/1 pil",
		"all,main,load=10/4 train.py",
		"all,__proto__=10/1 constructor",
	]);
});

test("frames that are smaller than what they hold, negative or without a name do no harm", () => {
	const root = decode({
		names: [],
		components: [],
		root: [
			7,
			7,
			-5,
			0,
			[
				[0, 0, 3, 1],
				[0, 0, -9, 2],
			],
		],
	});
	assert.deepEqual([root.name, root.component, root.resident, root.objects], ["?", "", 3, 3]);
	assert.deepEqual(
		root.children?.map((child) => child.resident),
		[3, 0],
	);
});

test("what is found within what is found counts once", () => {
	const root = decode(data);
	const { frames, value } = search(root, "rESize", "resident");
	assert.deepEqual([frames.size, value], [2, 70]);
	assert.equal(search(root, "rESize", "objects").value, 5);
	assert.deepEqual(search(root, ".*", "resident").frames.size, 0);
});

test("what components hold is all there is", () => {
	const root = decode(data);
	assert.deepEqual(componentsOf(root, "resident"), [
		["pil", 70],
		["train.py", 20],
		["constructor", 10],
	]);
	assert.equal(
		componentsOf(root, "objects").reduce((sum, [, n]) => sum + n, 0),
		10,
	);
});

test("no more frames are drawn than asked for, and none that could be is left out", () => {
	const root = decode({
		names: ["f"],
		components: [""],
		root: [0, 0, 1024, 1, Array.from({ length: 512 }, (_, i) => [0, 0, i < 256 ? 3 : 1, 1] as [number, number, number, number])],
	});
	const drawn = (width: number) => {
		let n = 0;
		walk(root, (frame) => {
			n += Number((1024 * frame.resident) / root.resident > width);
		});
		return n;
	};
	assert.equal(narrowestDrawn(root, "resident", 1024, 0.5, 1000), 0.5);
	assert.equal(drawn(narrowestDrawn(root, "resident", 1024, 0.5, 1000)), 513);
	assert.equal(drawn(narrowestDrawn(root, "resident", 1024, 0.5, 257)), 257);
	assert.equal(drawn(narrowestDrawn(root, "resident", 1024, 0.5, 256)), 1);
	assert.equal(drawn(narrowestDrawn(root, "resident", 1024, 0.5, 10)), 1);
	assert.equal(narrowestDrawn(root, "resident", 1024, 2, 300), 2);
});

test("an component's colour is its own, and names that objects have by nature are names like others", () => {
	assert.deepEqual(hueOf("pil"), hueOf("pil"));
	assert.notDeepEqual(hueOf("pil"), hueOf("numpy"));
	assert.equal(hueOf("other").grey, true);
	for (const name of ["__proto__", "constructor", "toString", "x".repeat(10_000), "\u202e"]) {
		const { angle, grey } = hueOf(name);
		assert.ok(!grey && angle >= 0 && angle < 360, name);
	}
});

test("tables sort by number, else by text, what is missing last either way", () => {
	const sorted = (keys: string[], direction: 1 | -1) => [...keys].sort((a, b) => compareKeys(a, b, direction));
	assert.deepEqual(sorted(["10", "9", "-", "-3.5", ""], 1), ["-3.5", "9", "10", "-", ""]);
	assert.deepEqual(sorted(["10", "9", "-", "-3.5"], -1), ["10", "9", "-3.5", "-"]);
	assert.deepEqual(sorted(["b.py:10", "b.py:9", "a"], 1), ["a", "b.py:9", "b.py:10"]);
});
