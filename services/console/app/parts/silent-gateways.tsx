/** Names the gateways that do not respond, so that nobody takes the numbers of the others for all numbers. */
export const SilentGateways = ({ addresses }: { readonly addresses: readonly string[] }) =>
  addresses.map((address) => (
    <p key={address} className="failure" role="alert">
      The gateway {address} does not respond. What it knows is missing here.
    </p>
  ))
