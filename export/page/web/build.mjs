// Builds ../assets from src and css: one script, one style, and the licences of what the script holds.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const assets = "../assets";

const result = await build({
	entryPoints: { page: "src/main.ts" },
	outdir: assets,
	bundle: true,
	alias: { "d3-transition": "./src/flame/still.ts" },
	minify: true,
	format: "iife",
	charset: "ascii", // the page's encoding does not matter to its hash
	target: ["es2022", "chrome111", "firefox113", "safari16.4"],
	legalComments: "none", // they are in LICENSES.txt
	metafile: true,
	write: false,
	logLevel: "warning",
});

mkdirSync(assets, { recursive: true });
for (const file of result.outputFiles) {
	const ends = file.path.endsWith(".js") ? /<\/script|<!--/i : /<\/style/i;
	if (ends.test(file.text)) {
		throw new Error(`${file.path} would end the element that it is put into`);
	}
	writeFileSync(file.path, file.text);
}
writeFileSync(join(assets, "LICENSES.txt"), licences(Object.keys(result.metafile.inputs)));

/** licences are the texts of the packages that any of the inputs is from; packages with the same text share it. */
function licences(inputs) {
	const folders = new Set(inputs.map((path) => path.match(/^.*node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0]).filter(Boolean));
	const namesOf = new Map();
	for (const folder of [...folders].sort()) {
		const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
		const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
		if (!file) {
			throw new Error(`${folder} has no licence`);
		}
		const text = readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim();
		namesOf.set(text, [...(namesOf.get(text) ?? []), `${name} ${version} (${license})`]);
	}
	return [...namesOf].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`).join(`\n${"-".repeat(80)}\n\n`);
}
