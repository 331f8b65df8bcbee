import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react'
import { call, hasEnded } from '../api.ts'
import { readAllAgain } from '../live.ts'
import { notify } from '../notice.ts'
import { BlockableButton, BlockedNotice, useBlocked, useRole } from './blockable-button.tsx'
import { FieldName, Outside } from './elements.tsx'
import { ProblemHelp } from './problem.tsx'

export interface ActionButtonProps {
  /** The verb, which is the text of the button in the dialog. */
  readonly verb: string
  /** The text of the button on the page, if it is not the verb. */
  readonly label?: string | undefined
  /** The begin of the question in the dialog, if it is not the verb. */
  readonly question?: string
  /** Whether the action ends or deletes something that cannot be brought back. Its button then has another colour. */
  readonly isDangerous?: boolean
  /** The class of the button on the page. */
  readonly className?: string
  /** The reason why the action is not possible now, even for an operator; `undefined` if it is possible. */
  readonly blocked?: string | undefined
  /** The object of the action, such as `run 0 of 66`. */
  readonly object: string
  /** What will happen, in one or two sentences. */
  readonly consequence: string
  readonly reason?: 'optional' | 'required' | 'none'
  /** The text that the person must type to confirm an action that cannot be undone. */
  readonly typed?: string
  /** What the action is about, if `object` does not identify it. */
  readonly subject?: string
  readonly children?: ReactNode
  /** Whether everything that the person must see before the confirmation has been loaded. Default: true. */
  readonly isReady?: boolean
  /**
   * Sends the request. A repetition after a lost response has the same `key`. If this is a path of the API, the request
   * has the reason.
   */
  readonly act: string | ((form: FormData, key: string) => Promise<unknown>)
  /** The message after the action. If it is empty, no message is shown. */
  readonly done: string
}

/**
 * A button of operators that opens a dialog for confirmation before it acts. The dialog names the object and the consequences. If
 * the action is not possible, the button stays visible and shows the reason.
 */
export function ActionButton(props: ActionButtonProps) {
  const { verb, label = verb, className, blocked } = props
  const role = useRole()
  const [isOpen, setOpen] = useState(false)
  const unansweredRef = useRef<ActionRequest | null>(null)
  return (
    <>
      <BlockableButton
        blocked={role ?? blocked}
        {...(className !== undefined && { className })}
        onClick={() => setOpen(true)}
      >
        {label}…
      </BlockableButton>
      {isOpen && (
        <ActionDialog {...props} unansweredRef={unansweredRef} onClose={() => setOpen(false)} />
      )}
    </>
  )
}

/** A request that has got no response yet. */
export interface ActionRequest extends Pick<ActionButtonProps, 'act'> {
  readonly key: string
  /** Identifies the action and its object. */
  readonly about: string
  /** What the person has typed and chosen in the form of the dialog. */
  readonly filledIn: string
}

export interface ActionDialogProps extends ActionButtonProps {
  /**
   * The request that has got no response yet, even if the dialog was closed meanwhile. The server may have executed the
   * request and changed the object. Therefore a repetition has the same key and acts on the same version of the object.
   * If the person has changed the form since then, the request has the same key but a new content. The server executes
   * it only if it has not executed the first request.
   */
  readonly unansweredRef: { current: ActionRequest | null }
  readonly onClose: () => void
}

/** The confirmation of an action. */
export function ActionDialog(props: ActionDialogProps) {
  const { verb, question = verb, object, consequence, typed, isReady = true } = props
  const { reason = 'optional', isDangerous = false } = props
  const { unansweredRef, onClose } = props
  const dialog = useRef<HTMLDialogElement>(null)
  const title = useId()
  useEffect(() => dialog.current?.showModal(), [])
  const queries = useQueryClient()
  const isBlocked = useBlocked() !== undefined
  const action = useMutation({
    mutationFn: (form: FormData) => {
      const about = JSON.stringify([verb, object, props.subject])
      const filledIn = JSON.stringify([...form])
      const before = unansweredRef.current?.about === about ? unansweredRef.current : null
      const { key = crypto.randomUUID() } = before ?? {}
      const act = before?.filledIn === filledIn ? before.act : props.act
      unansweredRef.current = { key, about, filledIn, act }
      return typeof act === 'string' ? call('POST', act, reasonOf(form), key) : act(form, key)
    },
    onSuccess: () => {
      dialog.current?.close()
      if (props.done !== '') notify(props.done)
    },
    onSettled: (_, error) => {
      if (hasEnded(error)) unansweredRef.current = null
      return readAllAgain(queries)
    },
  })
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    if (!action.isPending && isReady && !isBlocked) action.mutate(new FormData(event.currentTarget))
  }
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={onClose}>
      <form onSubmit={submit}>
        <h2 id={title}>
          {question}
          {object !== '' && (
            <>
              {' '}
              <Outside text={object} />
            </>
          )}
          ?
        </h2>
        <p>
          <Outside text={consequence} />
        </p>
        {props.children}
        {reason !== 'none' && (
          <label>
            <FieldName need={reason}>Reason</FieldName>
            <input
              name="reason"
              maxLength={500}
              required={reason === 'required'}
              autoComplete="off"
            />
          </label>
        )}
        {typed !== undefined && (
          <label>
            <FieldName need="required">
              Type <code>{typed}</code> to confirm
            </FieldName>
            <input
              name="typed"
              required
              autoComplete="off"
              pattern={typed.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`)}
            />
          </label>
        )}
        {action.isError && (
          <p className="failure" role="alert">
            <Outside text={action.error.message} />
            <ProblemHelp error={action.error} />
          </p>
        )}
        <BlockedNotice />
        <div className="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>
            Back
          </button>
          <button
            type="submit"
            className={isDangerous ? 'danger' : 'primary'}
            aria-disabled={action.isPending || !isReady || isBlocked}
          >
            {action.isPending ? 'One moment…' : verb}
          </button>
        </div>
      </form>
    </dialog>
  )
}

/** Returns the reason that the person has given, as a member of a request body. */
export function reasonOf(form: FormData): { readonly Reason?: string } {
  const reason = form.get('reason')
  return typeof reason === 'string' && reason.trim() !== '' ? { Reason: reason.trim() } : {}
}
