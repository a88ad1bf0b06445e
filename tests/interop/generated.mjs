// Generates a TypeScript client from the server's OpenAPI document, compiles generated.ts with it,
// and runs the result. An error of the type checker ends the program.
//
// Usage: node generated.mjs URL AGENT   (the API key in LONGHAUL_KEY, the folder of the installed
// packages in LONGHAUL_INTEROP_DIR; writes into the current folder)

import { execFileSync } from "node:child_process";
import { copyFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const packages = process.env.LONGHAUL_INTEROP_DIR;
const [url, agent] = process.argv.slice(2);
const key = process.env.LONGHAUL_KEY;

const require = createRequire(join(packages, "package.json"));
const { astToString, default: generateTypes } = require("openapi-typescript");
const headers = { Authorization: `Bearer ${key}` };
const document = await (await fetch(`${url}/openapi.json`, { headers })).json();
const types = astToString(await generateTypes(document));

writeFileSync("openapi.d.ts", types);
writeFileSync("package.json", '{ "type": "module" }');
symlinkSync(join(packages, "node_modules"), "node_modules");
copyFileSync(new URL("generated.ts", import.meta.url), "generated.ts");
const compilerOptions = {
  strict: true,
  target: "es2022",
  lib: ["es2022", "dom"],
  module: "nodenext",
  types: [],
};
writeFileSync("tsconfig.json", JSON.stringify({ compilerOptions, files: ["generated.ts"] }));
const compiler = join(packages, "node_modules/typescript/bin/tsc");
execFileSync(process.execPath, [compiler], { stdio: "inherit" });

const { start } = await import(pathToFileURL(resolve("generated.js")));
await start(url, key, agent);
console.log("a run, a batch and a chain");
