/** Names the gateways that do not respond, because the counts on the page do not include their calls. */
export const SilentGateways = ({ addresses }: { readonly addresses: readonly string[] }) =>
  addresses.map((address) => (
    <p key={address} className="failure" role="alert">
      The gateway {address} does not respond. What it knows is missing here.
    </p>
  ))
