// Who changes something shows a token for it.

import { useEffect, useRef, useState } from "preact/hooks";
import { signedIn, signIn, signOut } from "./api";
import { Name } from "./name";

export function SignIn({ changed }: { changed: () => void }) {
  const [open, setOpen] = useState(false);
  const [given, give] = useState("");
  const [said, say] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), [open]);
  if (signedIn())
    return <button type="button" onClick={() => { signOut(); changed(); }}>Sign out</button>;
  if (!open) return <button type="button" onClick={() => setOpen(true)}>Sign in</button>;
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    try {
      await signIn(given.trim());
      setOpen(false);
      say("");
      changed();
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
    give("");
  };
  return (
    <form class="signin" onSubmit={(event) => void submit(event)} onKeyDown={(event) => event.key === "Escape" && setOpen(false)}>
      <label>
        <span class="hidden">Token</span>
        <input type="password" value={given} autocomplete="off" placeholder="token of an administrator" ref={input}
          onInput={(event) => give(event.currentTarget.value)} />
      </label>
      <button type="submit" disabled={given.trim() === ""}>Sign in</button>
      <span class="quiet" role="status">{said !== "" ? <Name text={said} /> : <><code>sudo weir token me --role admin</code> makes one</>}</span>
    </form>
  );
}
